#include "server/data/jsonl/media_root.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/files/path_pattern.h"
#include "server/files/storage.h"
#include "server/sample/data_fault.h"

namespace ballast {

absl::Status CheckMediaPath(absl::string_view medium, absl::string_view path) {
  const auto refused = [=](const char* cause, absl::string_view reason) {
    return OfKind(DataFaultError(absl::StrCat(medium, " \"", Printable(path),
                                              "\" ", reason)),
                  MediaKind(medium, cause));
  };
  if (absl::StartsWith(path, "data:")) {
    return refused(kIsUrl,
                   "is a data URL; media are read from files: write it to one "
                   "below media_root and name its path");
  }
  // An address of a root is below it, or is refused when it is opened.
  const bool is_place =
      absl::StartsWith(path, "file:///") || absl::StartsWith(path, "s3://") ||
      absl::StartsWith(path, "gs://") || absl::StartsWith(path, "abfs://");
  if (absl::StrContains(path, "://") && !is_place) {
    return refused(kIsUrl,
                   "is a URL; media are read from files: download it below "
                   "media_root and name its path");
  }
  if (absl::EndsWith(path, ".zip") || absl::StrContains(path, ".zip/") ||
      absl::StrContains(path, ".zip@")) {
    return refused(kInZip,
                   "is in a zip archive, which is not read: unpack it below "
                   "media_root and name its path");
  }
  return CheckPathText(path);
}

bool IsSameFile(absl::string_view one, absl::string_view other) {
  if (one.size() < other.size()) std::swap(one, other);
  return absl::ConsumeSuffix(&one, other) &&
         (one.empty() || one.back() == '/' || absl::StartsWith(other, "/"));
}

bool NamesMedia(absl::string_view text) {
  constexpr absl::string_view kEnds[] = {
      ".jpg",  ".jpeg", ".png",  ".webp", ".gif", ".bmp", ".tif",
      ".tiff", ".mp4",  ".webm", ".mkv",  ".avi", ".mov", ".wav",
      ".flac", ".mp3",  ".m4a",  ".ogg",  ".opus"};
  return text.find_first_of(" \n") == text.npos &&
         !absl::StrContains(text, "://") &&
         std::any_of(std::begin(kEnds), std::end(kEnds),
                     [&](absl::string_view end) {
                       return absl::EndsWithIgnoreCase(text, end);
                     });
}

namespace {

constexpr absl::string_view kFileUrl = "file://";

// Whether a part of `path` is "..".
bool GoesUp(absl::string_view path) {
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part == "..") return true;
  }
  return false;
}

}  // namespace

// A folder with its descriptor, for opening files whose entries are in memory;
// or a prefix in a store.
struct MediaRoot::Folder {
  // Without links; ends with '/'.
  const std::string path;
  const bool in_store;
  const int descriptor;
  const bool alone;

  Folder(std::string folder, bool is_prefix)
      : path(std::move(folder)),
        in_store(is_prefix),
        descriptor(is_prefix
                       ? -1
                       : open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)),
        alone(descriptor >= 0 && OpensAlone(descriptor)) {}
  ~Folder() {
    if (descriptor >= 0) close(descriptor);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

absl::StatusOr<MediaRoot> MediaRoot::Create(
    const std::vector<std::string>& folders) {
  MediaRoot media;
  for (const std::string& folder : folders) {
    std::string real = folder;
    if (IsStoreUrl(folder)) {
      BALLAST_RETURN_IF_ERROR(
          Annotate(Storage::OfProcess().CheckStore(folder), "media_root"));
    } else {
      std::error_code error;
      real = std::filesystem::canonical(folder.empty() ? "." : folder, error)
                 .string();
      if (error) return FileError(error.value(), "find the media_root", folder);
    }
    if (!absl::EndsWith(real, "/")) real += '/';
    media.roots_.push_back(
        std::make_shared<const Folder>(std::move(real), IsStoreUrl(folder)));
  }
  return media;
}

absl::StatusOr<MediaRoot> MediaRoot::Create(const v1::Source& source,
                                            absl::string_view directory) {
  std::vector<std::string> folders;
  for (const std::string& root : source.media_root()) {
    folders.push_back(ResolvePath(directory, root));
  }
  if (folders.empty()) folders.push_back(ResolvePath(directory, ""));
  return Create(folders);
}

bool MediaRoot::InStore() const {
  return std::any_of(roots_.begin(), roots_.end(),
                     [](const auto& root) { return root->in_store; });
}

bool MediaRoot::IsBelow(absl::string_view real) const {
  return std::any_of(roots_.begin(), roots_.end(), [&](const auto& root) {
    return absl::StartsWith(real, root->path);
  });
}

absl::Status MediaRoot::Outside(absl::string_view path,
                                const std::string& folder) const {
  std::vector<std::string> roots;
  for (const auto& root : roots_) {
    roots.push_back(
        absl::StrCat("\"", root->path.substr(0, root->path.size() - 1), "\""));
  }
  const std::string known = absl::StrJoin(roots, ", ");
  return OfKind(
      absl::InvalidArgumentError(absl::StrCat(
          "path \"", Printable(path), "\" leads outside of media_root, ", known,
          "; if its folder holds media to be read, name it, too: media_root: [",
          known, ", \"", absl::Utf8SafeCEscape(folder), "\"]")),
      kOutside);
}

absl::StatusOr<File> MediaRoot::OpenFile(const std::string& whole,
                                         absl::string_view path) const {
  BALLAST_ASSIGN_OR_RETURN(File file, File::Open(whole));
  BALLAST_ASSIGN_OR_RETURN(const std::string real, file.RealPath());
  if (IsBelow(real)) return file;
  return Outside(path, std::filesystem::path(real).parent_path());
}

absl::StatusOr<File> MediaRoot::OpenElsewhere(const std::string& whole,
                                              absl::string_view path) const {
  // A record must not make a server open what is not media, such as a device.
  std::error_code error;
  const std::string real = std::filesystem::canonical(whole, error).string();
  if (error) return FileError(error.value(), "open", whole);
  if (!IsBelow(real)) {
    return Outside(path, std::filesystem::path(real).parent_path());
  }
  return OpenFile(real, path);
}

absl::StatusOr<File> MediaRoot::OpenBelow(const Folder& root,
                                          absl::string_view path,
                                          ReadFrom from) const {
  const std::string whole = absl::StrCat(root.path, path);
  if (root.in_store) {
    if (!GoesUp(path)) return Storage::OfProcess().Open(whole, from);
    const size_t names = whole.find("://") + 3;
    const std::filesystem::path real =
        std::filesystem::path(whole.substr(names)).lexically_normal();
    const std::string scheme = whole.substr(0, names);
    if (!IsBelow(scheme + real.string())) {
      return Outside(path, scheme + real.parent_path().string());
    }
    return Storage::OfProcess().Open(scheme + real.string(), from);
  }
  if (from == ReadFrom::kDisk) {
    return GoesUp(path) ? OpenElsewhere(whole, path) : OpenFile(whole, path);
  }
  if (!root.alone) {
    return absl::AbortedError(absl::StrCat(whole, ": not opened from memory"));
  }
  return File::OpenInMemory(root.descriptor, whole, std::string(path));
}

absl::StatusOr<File> MediaRoot::Open(absl::string_view path,
                                     ReadFrom from) const {
  BALLAST_RETURN_IF_ERROR(CheckPathText(path));
  absl::string_view place = path;
  if (IsStoreUrl(path) || absl::StartsWith(path, "/")) {
    for (const auto& root : roots_) {
      if (!absl::ConsumePrefix(&place, root->path)) continue;
      return OpenBelow(*root, place, from);
    }
    absl::ConsumePrefix(&place, kFileUrl);
    if (!absl::StartsWith(place, "/")) {
      return Outside(path, std::string(path.substr(0, path.rfind('/'))));
    }
    for (const auto& root : roots_) {
      absl::string_view below = place;
      if (!absl::ConsumePrefix(&below, root->path)) continue;
      return OpenBelow(*root, below, from);
    }
    if (from == ReadFrom::kMemory) {
      return absl::AbortedError(absl::StrCat(path, ": not opened from memory"));
    }
    return OpenElsewhere(std::string(place), path);
  }
  absl::StatusOr<File> file = OpenBelow(*roots_.front(), path, from);
  for (size_t i = 1; i < roots_.size(); ++i) {
    // Of the first root that has it; a root that cannot tell is not passed by.
    if (!absl::IsNotFound(file.status()) &&
        GetBadKind(file.status()) != kOutside) {
      return file;
    }
    absl::StatusOr<File> next = OpenBelow(*roots_[i], path, from);
    if (!absl::IsNotFound(next.status())) file = std::move(next);
  }
  return file;
}

}  // namespace ballast
