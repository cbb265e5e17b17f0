#include "server/data/source_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/data/form/forms.h"
#include "server/data/parquet/unpack.h"
#include "server/data/record_parser.h"
#include "server/files/path_pattern.h"
#include "server/files/storage.h"
#include "server/sample/data_fault.h"
#include "server/sample/image_header.h"
#include "server/sample/index_format.h"
#include "server/settings/source_fields.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

// `path` relative to `directory` if it is inside; empty if they are equal.
std::string RelativeName(absl::string_view directory, absl::string_view path) {
  absl::ConsumeSuffix(&directory, "/");
  absl::string_view name = path;
  if (directory.empty() || !absl::ConsumePrefix(&name, directory)) {
    return std::string(path);
  }
  if (name.empty() || absl::ConsumePrefix(&name, "/")) return std::string(name);
  return std::string(path);
}

// The folder of a pattern: all that precedes its first wildcard, up to a slash.
absl::string_view PatternFolder(absl::string_view pattern) {
  const absl::string_view fixed =
      pattern.substr(0, pattern.find_first_of("{*?[\\"));
  const size_t slash = fixed.rfind('/');
  return slash == fixed.npos ? absl::string_view() : fixed.substr(0, slash + 1);
}

// The last two parts of a path: the same of a copy, and of the path as seen
// from another folder.
absl::string_view LastTwoParts(absl::string_view path) {
  const size_t last = path.rfind('/');
  if (last == path.npos || last == 0) return path;
  const size_t slash = path.rfind('/', last - 1);
  return slash == path.npos ? path : path.substr(slash + 1);
}

// source.index as a path, with or without a `*`.
struct IndexName {
  std::string before;  // the `*`; all, if there is none
  std::string after;
  bool is_pattern = false;

  std::string WithoutPattern() const {
    absl::string_view first = before;
    if (is_pattern) absl::ConsumeSuffix(&first, "-");
    return absl::StrCat(first, after);
  }
  bool Matches(absl::string_view path) const {
    return absl::ConsumePrefix(&path, before) &&
           absl::ConsumeSuffix(&path, after) && path.size() == 8 &&
           path.find_first_not_of("0123456789abcdef") == path.npos;
  }
};

IndexName GetIndexName(const v1::Source& source, absl::string_view directory) {
  IndexName name;
  name.before = ResolvePath(directory, source.index());
  const size_t slash = name.before.rfind('/');
  const size_t star =
      name.before.find('*', slash == name.before.npos ? 0 : slash);
  if (star == name.before.npos) return name;
  name.is_pattern = true;
  name.after = name.before.substr(star + 1);
  name.before.resize(star);
  return name;
}

absl::Status CheckFresh(const IndexFile& index, const v1::Source& source,
                        absl::string_view directory, const IndexKey& key) {
  const auto stale = [&](const auto&... why) {
    return absl::FailedPreconditionError(
        absl::StrCat(index.path(), ": stale index: ", why...));
  };
  const IndexDigests digests =
      GetDigests(source, directory, key, index.has_streams());
  if (index.digests().sizes != digests.sizes) {
    return stale(
        "it was built with another format, media_root or exif_orientation, "
        "other columns, filters or fields, another recipe, or Python or "
        "packages for it, or by another version of this program");
  }
  if (index.digests().lengths != digests.lengths) {
    return stale(
        "it was built with another tokenizer, chat template or token id, or "
        "another image_plan of model.recipe");
  }
  if (index.digests().limits != digests.limits) {
    return stale(
        "it was built with other bounds of pixels or tokens, another patch, "
        "on_too_long or, as it has videos, model.video");
  }
  if (!index.HasMarks()) {
    return stale("other rules told what JPEG engines may decode");
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  if (files.size() != index.num_files()) {
    return stale("there are ", files.size(), " files, it knows ",
                 index.num_files());
  }
  std::vector<std::string> paths;
  for (const SourceFile& file : files) paths.push_back(file.path);
  for (uint64_t i = 0; i < files.size(); ++i) {
    if (!IsNamed(files[i], index.file_name(i))) {
      return stale("file ", i, " is ", files[i].name, ", it knows ",
                   Printable(index.file_name(i)));
    }
  }
  const auto stamps = Storage::OfProcess().StampAll(paths);
  if (absl::IsNotFound(stamps.status()) &&
      std::any_of(files.begin(), files.end(),
                  [](const SourceFile& file) { return file.packed; })) {
    return stale(
        "compressed files have changed, or their lines are not unpacked: ",
        stamps.status().message());
  }
  BALLAST_RETURN_IF_ERROR(stamps.status());
  for (uint64_t i = 0; i < files.size(); ++i) {
    const FileStamp now = (*stamps)[i];
    const FileStamp then = index.file_stamp(i);
    if (now.size != then.size) {
      return stale(files[i].name, " has ", now.size, " bytes, it knows ",
                   then.size);
    }
    if (now.mtime_ns != then.mtime_ns) {
      return stale(files[i].name, IsStoreUrl(files[i].path)
                                      ? " is another version in the store"
                                      : " has another modification time");
    }
  }
  return absl::OkStatus();
}

// Names the unpacked lines of `files` that are compressed.
absl::Status NameUnpackedLines(const std::string& folder,
                               std::vector<SourceFile>* files) {
  std::vector<SourceFile*> compressed;
  std::vector<std::string> paths;
  for (SourceFile& file : *files) {
    if (!IsPacked(file.path)) continue;
    compressed.push_back(&file);
    paths.push_back(file.path);
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<FileStamp> stamps,
                           Storage::OfProcess().StampAll(paths));
  for (size_t i = 0; i < paths.size(); ++i) {
    SourceFile& file = *compressed[i];
    const uint64_t version = Checksum(absl::StrCat(
        file.below, "\n", stamps[i].size, "\n", stamps[i].mtime_ns));
    const std::string base = fs::path(file.path).stem().string();
    file.packed = {std::move(file.path), stamps[i]};
    file.path = absl::StrCat(folder, "/", absl::Hex(version, absl::kZeroPad16),
                             "-", base);
  }
  return absl::OkStatus();
}

}  // namespace

bool IsNamed(const SourceFile& file, absl::string_view name) {
  if (name == file.name || name == file.below) return true;
  return !file.below.empty() && absl::ConsumeSuffix(&name, file.below) &&
         absl::EndsWith(name, "/");
}

std::string LinesFolder(const v1::Source& source, absl::string_view directory) {
  return absl::StrCat(GetIndexName(source, directory).WithoutPattern(),
                      ".lines");
}

absl::StatusOr<std::vector<SourceFile>> ListSourceFiles(
    const v1::Source& source, absl::string_view directory) {
  BALLAST_ASSIGN_OR_RETURN(const RecordFormat* format, FindFormat(source));
  BALLAST_ASSIGN_OR_RETURN(
      std::vector<std::string> paths,
      format->list_files != nullptr
          ? format->list_files(source, directory)
          : Storage::OfProcess().ListFiles(directory, source.path()));
  const std::string base = ResolvePath(directory, PatternFolder(source.path()));
  std::vector<SourceFile> files;
  files.reserve(paths.size());
  for (std::string& path : paths) {
    SourceFile& file = files.emplace_back();
    file.name = RelativeName(directory, path);
    file.below = RelativeName(base, path);
    file.path = std::move(path);
  }
  if (source.format() == v1::Source::FORMAT_JSONL) {
    BALLAST_RETURN_IF_ERROR(
        NameUnpackedLines(LinesFolder(source, directory), &files));
  }
  return files;
}

namespace {

// The number before "-of-", in "train-00001-of-00003.parquet".
struct ShardName {
  absl::string_view before;  // up to the number
  absl::string_view number;
  absl::string_view after;  // from "-of-"
  uint64_t count = 0;
};

std::optional<ShardName> ParseShardName(absl::string_view path) {
  constexpr absl::string_view kOf = "-of-";
  const size_t of = path.rfind(kOf);
  if (of == path.npos || path.find('/', of) != path.npos) return std::nullopt;
  ShardName name;
  size_t begin = of;
  while (begin > 0 && absl::ascii_isdigit(path[begin - 1])) --begin;
  size_t end = of + kOf.size();
  while (end < path.size() && absl::ascii_isdigit(path[end])) ++end;
  name.before = path.substr(0, begin);
  name.number = path.substr(begin, of - begin);
  name.after = path.substr(of);
  const absl::string_view count = path.substr(of + kOf.size(), end - of - 4);
  if (name.number.empty() || !absl::SimpleAtoi(count, &name.count)) {
    return std::nullopt;
  }
  return name;
}

}  // namespace

absl::Status CheckNotLfsPointer(const File& file) {
  constexpr uint64_t kMostBytes = 1024;
  if (file.stamp().size > kMostBytes) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(const std::string text,
                           file.ReadAt(0, file.stamp().size));
  if (!absl::StartsWith(text, kLfsPointer)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      file.path(), ": found a pointer of git LFS (", text.size(),
      " bytes) in place of the file; run `git lfs pull` in its repository, or "
      "`hf download` in place of `git clone`"));
}

std::string MissingShards(const std::vector<std::string>& paths) {
  constexpr size_t kNamed = 3;
  struct Set {
    ShardName name;
    std::set<uint64_t> numbers;
  };
  std::map<std::pair<absl::string_view, absl::string_view>, Set> sets;
  for (const std::string& path : paths) {
    const std::optional<ShardName> name = ParseShardName(path);
    uint64_t number = 0;
    if (!name || !absl::SimpleAtoi(name->number, &number)) continue;
    Set& set = sets[{name->before, name->after}];
    set.name = *name;
    set.numbers.insert(number);
  }
  uint64_t missing = 0;
  uint64_t wanted = 0;
  std::vector<std::string> names;
  for (const auto& [key, set] : sets) {
    // Numbers begin at 0 or at 1.
    const uint64_t first = set.numbers.count(set.name.count) > 0 ? 1 : 0;
    if (set.numbers.size() >= set.name.count) continue;
    missing += set.name.count - set.numbers.size();
    wanted += set.name.count;
    for (uint64_t i = first;
         i < set.name.count + first && names.size() < kNamed; ++i) {
      if (set.numbers.count(i) > 0) continue;
      const std::string number = absl::StrCat(i);
      const size_t width = set.name.number.size();
      const std::string path =
          absl::StrCat(set.name.before,
                       std::string(width - std::min(width, number.size()), '0'),
                       number, set.name.after);
      names.push_back(path.substr(path.rfind('/') + 1));
    }
  }
  if (missing == 0) return "";
  return absl::StrCat(
      missing, " of ", wanted,
      " files are not there: ", absl::StrJoin(names, ", "),
      missing > names.size() ? ", …" : "",
      "; download the rest, or name those that are wanted one by one in "
      "`path`, with braces");
}

IndexDigests GetDigests(const v1::Source& source, absl::string_view directory,
                        const IndexKey& key, bool has_videos) {
  const auto format = FindFormat(source);
  std::string media;
  std::string columns;
  // Listing the files reports a format that is not read.
  if (format.ok()) {
    if ((*format)->names_media) {
      // As it is written: a configuration that has moved means the same.
      media = absl::StrJoin(source.media_root(), "\n");
      if (media == ".") media.clear();
    }
    if ((*format)->key != nullptr) columns = (*format)->key(source, directory);
    absl::StrAppend(&columns, FieldsKey(source));
    if (source.pairs()) absl::StrAppend(&columns, "\npairs");
    if (source.has_form()) {
      absl::StrAppend(&columns, "form ", FormKey(source.form()), "\n");
    }
    if (!source.recipe().empty()) {
      // One that cannot be opened, which making the parser reports, fits no
      // index.
      absl::StrAppend(&columns, "recipe ",
                      GetRecipeName(source, directory).value_or("unreadable"),
                      "\n");
    }
  }
  IndexDigests digests;
  digests.sizes = ComputeDigest(absl::StrCat(static_cast<int>(source.format()),
                                             "\n", media.size(), "\n", media,
                                             "\n", columns, key.sizes));
  digests.lengths = ComputeDigest(key.lengths);
  digests.limits = ComputeDigest(
      has_videos ? absl::StrCat(key.limits, key.videos) : key.limits);
  return digests;
}

std::string IndexPath(const v1::Source& source, absl::string_view directory,
                      const IndexKey& key) {
  const IndexName name = GetIndexName(source, directory);
  if (!name.is_pattern) return name.before;
  // Whether there are videos is not known yet.
  const IndexDigests digests =
      GetDigests(source, directory, key, /*has_videos=*/true);
  std::string all(LastTwoParts(source.path()));
  for (const Digest& digest :
       {digests.sizes, digests.lengths, digests.limits}) {
    absl::StrAppend(&all, "\n", digest[0], ":", digest[1]);
  }
  return absl::StrCat(
      name.before,
      absl::Hex(static_cast<uint32_t>(Checksum(all)), absl::kZeroPad8),
      name.after);
}

std::string OldIndexPath(const v1::Source& source, absl::string_view directory,
                         const IndexKey& key) {
  const std::string path = IndexPath(source, directory, key);
  const IndexName name = GetIndexName(source, directory);
  std::error_code error;
  if (!name.is_pattern || fs::exists(path, error)) return path;
  std::string newest = path;
  std::optional<fs::file_time_type> newest_time;
  for (fs::directory_iterator entry(fs::path(path).parent_path(), error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string found = entry->path().string();
    if (found != name.WithoutPattern() && !name.Matches(found)) continue;
    std::error_code gone;
    const fs::file_time_type time = entry->last_write_time(gone);
    if (gone || (newest_time.has_value() && time <= *newest_time)) continue;
    newest = found;
    newest_time = time;
  }
  return newest;
}

absl::StatusOr<std::shared_ptr<const IndexFile>> OpenFreshIndex(
    const v1::Source& source, absl::string_view directory, const IndexKey& key,
    EncodedRule rule) {
  BALLAST_ASSIGN_OR_RETURN(
      std::shared_ptr<const IndexFile> index,
      IndexFile::Open(IndexPath(source, directory, key), rule));
  BALLAST_RETURN_IF_ERROR(CheckFresh(*index, source, directory, key));
  return index;
}

absl::Status CheckIndexFresh(const v1::Source& source,
                             absl::string_view directory, const IndexKey& key) {
  return OpenFreshIndex(source, directory, key).status();
}

absl::Status VerifyIndex(
    const v1::Source& source, absl::string_view directory, const IndexKey& key,
    const std::function<void(uint64_t samples)>& progress) {
  BALLAST_ASSIGN_OR_RETURN(const auto index,
                           OpenFreshIndex(source, directory, key));
  return index->Verify(progress);
}

namespace {

// A file's position in the lists: numbers of the source and of its file.
struct Place {
  int source = 0;
  size_t file = 0;
};

}  // namespace

absl::StatusOr<std::vector<SharedFile>> FindSharedFiles(
    const v1::Config& config, absl::string_view directory) {
  std::vector<SharedFile> shared;
  std::vector<std::vector<SourceFile>> listed(config.sources_size());
  absl::flat_hash_map<std::pair<dev_t, ino_t>, Place> first;
  absl::flat_hash_map<std::string, Place> objects;
  for (int s = 0; s < config.sources_size(); ++s) {
    const v1::Source& source = config.sources(s);
    if (source.format() == v1::Source::FORMAT_MOCK) continue;
    auto files = ListSourceFiles(source, directory);
    if (!files.ok()) {
      return Annotate(files.status(), absl::StrCat("source ", source.name()));
    }
    listed[s] = *std::move(files);
    for (size_t i = 0; i < listed[s].size(); ++i) {
      const SourceFile& file = listed[s][i];
      const std::string& path = file.packed ? file.packed->path : file.path;
      Place place;
      if (IsStoreUrl(path)) {
        const auto [found, is_new] = objects.emplace(path, Place{s, i});
        if (is_new) continue;
        place = found->second;
      } else {
        struct stat stat;
        if (::stat(path.c_str(), &stat) != 0) continue;
        const auto [found, is_new] = first.emplace(
            std::make_pair(stat.st_dev, stat.st_ino), Place{s, i});
        if (is_new) continue;
        place = found->second;
      }
      shared.push_back({source.name(), listed[s][i].name,
                        config.sources(place.source).name(),
                        listed[place.source][place.file].name});
    }
  }
  return shared;
}

}  // namespace ballast
