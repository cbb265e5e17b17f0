#ifndef BALLAST_SERVER_DATA_SOURCE_FILES_H_
#define BALLAST_SERVER_DATA_SOURCE_FILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/data/index/index_file.h"
#include "server/data/index/index_options.h"
#include "server/files/file.h"

namespace ballast {
// A compressed file, as it is now.
struct PackedFile {
  std::string path;
  FileStamp stamp;
};

// A data file of a source.
struct SourceFile {
  // For compressed lines, the file of unpacked ones (UnpackLines), which need
  // not be there: its name follows from the name and the stamp of `packed`, its
  // folder is INDEX.lines.
  std::string path;
  // Relative to the configuration's directory if inside it, so that a dataset
  // may move together with its configuration. Of the compressed file, if any.
  std::string name;
  std::optional<PackedFile> packed;
  // Relative to the folder of the source's pattern, wherever that is.
  std::string below = "";
};

// Whether an index that calls a file `name` means `file`: it has the same place
// below the folder of the source's pattern. So an index stays fresh for a copy,
// and for a configuration that has moved. Pure.
bool IsNamed(const SourceFile& file, absl::string_view name);

// The folder of the unpacked lines of a source with compressed ones. They do
// not depend on the model: the "-*" of source.index is left out.
std::string LinesFolder(const v1::Source& source, absl::string_view directory);

// The data files of `source`, in order. Errors: as FindFormat and ExpandPath;
// of the format; of compressed files as Storage::StampAll.
absl::StatusOr<std::vector<SourceFile>> ListSourceFiles(
    const v1::Source& source, absl::string_view directory);

// Refuses a pointer that git leaves in place of a file of LFS:
// FAILED_PRECONDITION, with what to do. Reads only a file of a pointer's size.
// Errors also as File::ReadAt.
absl::Status CheckNotLfsPointer(const File& file);

// Files that are numbered NAME-00001-of-00003 and that are not among `paths`
// while others of their number are, in words, with what to do; "" if there are
// none. Pure.
std::string MissingShards(const std::vector<std::string>& paths);

// The digests of `key` that an index of `source` holds. `has_videos`: of its
// records, left out or not, one has a video.
IndexDigests GetDigests(const v1::Source& source, absl::string_view directory,
                        const IndexKey& key, bool has_videos);

// The path of the index. A `*` in source.index is eight hexadecimal digits
// that follow from all digests of `key`.
std::string IndexPath(const v1::Source& source, absl::string_view directory,
                      const IndexKey& key);

// The path of the index from which a build of IndexPath takes what still fits:
// itself if it exists; else, with a `*` in source.index, the one that was
// written last for other models, or without "-*" by an earlier version.
std::string OldIndexPath(const v1::Source& source, absl::string_view directory,
                         const IndexKey& key);

// The index of `source` if it exists, its head is undamaged, and it is fresh:
// it was built with the same format, media root, key and rules, from the same
// files,
// none of which has changed its size or time since. Image files of jsonl
// sources are not looked at; FileSource::Read finds those that have changed.
// `rule` as in IndexFile::Open. Errors: as IndexFile::Open and ExpandPath;
// FAILED_PRECONDITION (stale, with what changed).
absl::StatusOr<std::shared_ptr<const IndexFile>> OpenFreshIndex(
    const v1::Source& source, absl::string_view directory, const IndexKey& key,
    EncodedRule rule = EncodedRule::kNone);

// Returns OpenFreshIndex's status: OK if the index need not be built.
absl::Status CheckIndexFresh(const v1::Source& source,
                             absl::string_view directory, const IndexKey& key);

// Like CheckIndexFresh, but reads the whole index and returns DATA_LOSS if any
// of it is damaged. `progress` as in IndexFile::Verify.
absl::Status VerifyIndex(const v1::Source& source, absl::string_view directory,
                         const IndexKey& key,
                         const std::function<void(uint64_t samples)>& progress);

// A data file that is listed a second time: by another source, or by the same
// source under another name (a link, "a/../a"). Its samples then occur more
// often than the weights say.
struct SharedFile {
  std::string source, file;        // the later one in the configuration
  std::string as_source, as_file;  // its first occurrence
};

// All such files of the configuration's sources, in order. Files are identified
// by device and inode, objects of a store by their path; missing files are left
// out. Blocks on the file system.
// Errors: as ExpandPath, naming the source.
absl::StatusOr<std::vector<SharedFile>> FindSharedFiles(
    const v1::Config& config, absl::string_view directory);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_SOURCE_FILES_H_
