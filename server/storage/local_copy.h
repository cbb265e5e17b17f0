#ifndef BALLAST_SERVER_STORAGE_LOCAL_COPY_H_
#define BALLAST_SERVER_STORAGE_LOCAL_COPY_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/small_file.h"
#include "server/corpus/file.h"
#include "server/storage/storage.h"

namespace ballast {

// A file of the system's folder for temporary files (TMPDIR) that holds one
// version of an object, for a library that reads files by their path. The
// destructor removes it. If a process is killed, the file stays until another
// process makes a copy there: each process holds a lock on its own file.
class LocalCopy {
 public:
  // Makes an empty file in `folder`. Errors: as File::CreateUnique; UNAVAILABLE
  // (it cannot be opened, or other processes remove every attempt at once).
  static absl::StatusOr<std::shared_ptr<LocalCopy>> Create(
      const std::string& folder);
  ~LocalCopy();
  LocalCopy(const LocalCopy&) = delete;
  LocalCopy& operator=(const LocalCopy&) = delete;

  const std::string& path() const { return file_.path(); }
  // Appends. Errors: as File::Write.
  absl::Status Write(absl::string_view bytes) { return file_.Write(bytes); }

 private:
  LocalCopy(File file, OwnedFd lock)
      : file_(std::move(file)), lock_(std::move(lock)) {}

  File file_;
  const OwnedFd lock_;
};

// Removes what killed processes have left in `folder`.
void RemoveLeftCopies(const std::string& folder);

// A copy of the object's present version. Callers share it, also later callers
// that request the same version before any other is requested. Asks the store
// for the version in each call. Blocks on the store and the disk; one object is
// fetched at a time. Errors: as Storage::Open and File::ReadAt; UNAVAILABLE
// also if the object changes meanwhile.
absl::StatusOr<std::shared_ptr<const LocalCopy>> CopyToDisk(
    const std::string& url);

// The bytes of the object `url`, all of one version, at most `most`. Blocks on
// the store. Errors, naming the object: INVALID_ARGUMENT (more bytes);
// UNAVAILABLE (it changed meanwhile); as Storage::Open and File::ReadAt.
absl::StatusOr<std::string> ReadSmallObject(Storage* storage,
                                            const std::string& url,
                                            size_t most);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_LOCAL_COPY_H_
