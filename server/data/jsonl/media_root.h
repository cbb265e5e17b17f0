#ifndef BALLAST_SERVER_DATA_JSONL_MEDIA_ROOT_H_
#define BALLAST_SERVER_DATA_JSONL_MEDIA_ROOT_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/files/file.h"

namespace ballast {

// Refuses a path of an "image" or a "video" (`medium`) that fails
// CheckDataPath, or that names something else than a separate file, a URL or
// a member of a zip archive, by its kind (data_fault.h): INVALID_ARGUMENT.
absl::Status CheckMediaPath(absl::string_view medium, absl::string_view path);

// Whether two paths may be of one file, from one folder or another: one ends
// with the other. Pure.
bool IsSameFile(absl::string_view one, absl::string_view other);

// Whether a text is the path of an image, a video or a clip, by the end of its
// name: no sentence, and no address of a page. Pure.
bool NamesMedia(absl::string_view text);

// The folder, or prefix in a store, to which a dataset's image paths are
// relative and which they must not leave. Thread-safe; blocks on the disk or
// the store.
class MediaRoot {
 public:
  // Errors: as FileError, naming `folder`; of a prefix as Storage::CheckStore.
  static absl::StatusOr<MediaRoot> Create(const std::string& folder);

  // Opens a file below the folder. Follows links. A link that leads outside is
  // refused by the path of the opened file, so it cannot be changed between
  // check and use. Errors: INVALID_ARGUMENT (CheckDataPath, outside, not a
  // regular file); as FileError. From memory (ReadFrom) also ABORTED. Of a
  // store: as Storage::Open.
  absl::StatusOr<File> Open(absl::string_view path,
                            ReadFrom from = ReadFrom::kDisk) const;

  // Whether it is a prefix in a store.
  bool InStore() const { return opened_ == nullptr; }

 private:
  struct Folder;
  MediaRoot(std::string folder, std::shared_ptr<const Folder> opened)
      : folder_(std::move(folder)), opened_(std::move(opened)) {}

  std::string folder_;  // without links; ends with '/'
  // Null for a prefix in a store.
  std::shared_ptr<const Folder> opened_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_JSONL_MEDIA_ROOT_H_
