#ifndef BALLAST_SERVER_DATA_JSONL_MEDIA_ROOT_H_
#define BALLAST_SERVER_DATA_JSONL_MEDIA_ROOT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/files/file.h"

namespace ballast {

// Refuses a path of an "image" or a "video" (`medium`) that fails
// CheckPathText, or that names something else than a separate file, a URL or
// a member of a zip archive, by its kind (data_fault.h): INVALID_ARGUMENT.
// Where it may lead, MediaRoot::Open says.
absl::Status CheckMediaPath(absl::string_view medium, absl::string_view path);

// Whether two paths may be of one file, from one folder or another: one ends
// with the other. Pure.
bool IsSameFile(absl::string_view one, absl::string_view other);

// Whether a text is the path of an image, a video or a clip, by the end of its
// name: no sentence, and no address of a page. Pure.
bool NamesMedia(absl::string_view text);

// The folders, or prefixes in stores, at which the paths of a source's media
// begin and which they must not leave. Thread-safe; blocks on the disk or the
// store.
class MediaRoot {
 public:
  // Errors: as FileError, naming the folder; of a prefix as
  // Storage::CheckStore.
  static absl::StatusOr<MediaRoot> Create(
      const std::vector<std::string>& folders);
  // Of a loaded source in a configuration of `directory`.
  static absl::StatusOr<MediaRoot> Create(const v1::Source& source,
                                          absl::string_view directory);

  // Opens a file. A relative path begins at the first root that has it; one
  // that is absolute, with `file://` or without, or the address of an object,
  // is itself. Follows links and "..", from one root to another, too. Anything
  // that leads outside of all roots is refused, with the line to add, by the
  // path of the opened file, so it cannot be changed between check and use;
  // what the text alone leads outside is not even opened. Errors:
  // INVALID_ARGUMENT (CheckPathText, outside, not a regular file); as
  // FileError. From memory (ReadFrom) also ABORTED. Of a store: as
  // Storage::Open.
  absl::StatusOr<File> Open(absl::string_view path,
                            ReadFrom from = ReadFrom::kDisk) const;

  // Whether one of them is a prefix in a store.
  bool InStore() const;

 private:
  struct Folder;
  MediaRoot() = default;

  // `path` is the record's, for messages.
  absl::StatusOr<File> OpenBelow(const Folder& root, absl::string_view path,
                                 ReadFrom from) const;
  absl::StatusOr<File> OpenFile(const std::string& whole,
                                absl::string_view path) const;
  absl::StatusOr<File> OpenElsewhere(const std::string& whole,
                                     absl::string_view path) const;
  bool IsBelow(absl::string_view real) const;
  absl::Status Outside(absl::string_view path, const std::string& folder) const;

  std::vector<std::shared_ptr<const Folder>> roots_;  // at least one
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_JSONL_MEDIA_ROOT_H_
