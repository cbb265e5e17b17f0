#ifndef BALLAST_SERVER_CORPUS_JSONL_MEDIA_ROOT_H_
#define BALLAST_SERVER_CORPUS_JSONL_MEDIA_ROOT_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/corpus/file.h"
#include "server/corpus/read_from.h"

namespace ballast {

// The folder that a dataset's image paths are relative to and never leave.
// Thread-safe; blocks on the disk.
class MediaRoot {
 public:
  // Errors: NOT_FOUND and others of the disk, naming `folder`.
  static absl::StatusOr<MediaRoot> Create(const std::string& folder);

  // Opens a file below the folder. Links are followed; one that leads outside
  // is refused by where it led, so that it cannot be changed in between.
  // Errors: INVALID_ARGUMENT (CheckDataPath, outside, not a regular file), the
  // disk's; INTERNAL (no /proc).
  // From memory (read_from.h) also ABORTED.
  absl::StatusOr<File> Open(absl::string_view path,
                            ReadFrom from = ReadFrom::kDisk) const;

 private:
  struct Folder;
  MediaRoot(std::string folder, std::shared_ptr<const Folder> opened)
      : folder_(std::move(folder)), opened_(std::move(opened)) {}

  std::string folder_;  // without links; ends with '/'
  std::shared_ptr<const Folder> opened_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_JSONL_MEDIA_ROOT_H_
