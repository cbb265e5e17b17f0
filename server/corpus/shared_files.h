#ifndef BALLAST_SERVER_CORPUS_SHARED_FILES_H_
#define BALLAST_SERVER_CORPUS_SHARED_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace ballast {

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

#endif  // BALLAST_SERVER_CORPUS_SHARED_FILES_H_
