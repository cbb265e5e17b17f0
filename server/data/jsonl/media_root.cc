#include "server/data/jsonl/media_root.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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
  if (absl::StrContains(path, "://")) {
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
  return CheckDataPath(path);
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

// The folder's descriptor, for opening files whose entries are in memory.
struct MediaRoot::Folder {
  explicit Folder(const std::string& path)
      : descriptor(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)),
        alone(descriptor >= 0 && OpensAlone(descriptor)) {}
  ~Folder() {
    if (descriptor >= 0) close(descriptor);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const int descriptor;
  const bool alone;
};

absl::StatusOr<MediaRoot> MediaRoot::Create(const std::string& folder) {
  if (IsStoreUrl(folder)) {
    BALLAST_RETURN_IF_ERROR(
        Annotate(Storage::OfProcess().CheckStore(folder), "media_root"));
    return MediaRoot(
        absl::EndsWith(folder, "/") ? folder : absl::StrCat(folder, "/"),
        nullptr);
  }
  std::error_code error;
  std::string real =
      std::filesystem::canonical(folder.empty() ? "." : folder, error).string();
  if (error) return FileError(error.value(), "find the media_root", folder);
  if (!absl::EndsWith(real, "/")) real += '/';
  auto opened = std::make_shared<const Folder>(real);
  return MediaRoot(std::move(real), std::move(opened));
}

absl::StatusOr<File> MediaRoot::Open(absl::string_view path,
                                     ReadFrom from) const {
  BALLAST_RETURN_IF_ERROR(CheckDataPath(path));
  const std::string whole = absl::StrCat(folder_, path);
  if (opened_ == nullptr) return Storage::OfProcess().Open(whole, from);
  if (from == ReadFrom::kMemory) {
    if (!opened_->alone) {
      return absl::AbortedError(
          absl::StrCat(whole, ": not opened from memory"));
    }
    return File::OpenInMemory(opened_->descriptor, whole, std::string(path));
  }
  BALLAST_ASSIGN_OR_RETURN(File file, File::Open(whole));
  BALLAST_ASSIGN_OR_RETURN(const std::string real, file.RealPath());
  if (!absl::StartsWith(real, folder_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("path \"", Printable(path), "\" leads outside ", folder_));
  }
  return file;
}

}  // namespace ballast
