#ifndef BALLAST_SERVER_STORAGE_LOCAL_COPY_H_
#define BALLAST_SERVER_STORAGE_LOCAL_COPY_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace ballast {

// A file of the system's folder for temporary files (TMPDIR) that holds one
// version of an object, for a library that reads files by their path. The
// destructor removes it; a process that is killed leaves it.
class LocalCopy {
 public:
  explicit LocalCopy(std::string path) : path_(std::move(path)) {}
  ~LocalCopy();
  LocalCopy(const LocalCopy&) = delete;
  LocalCopy& operator=(const LocalCopy&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

// A copy of the object's present version. Callers share it, also later ones
// that ask for the same version again before anything else is asked for. Asks
// the store for the version in each call. Blocks on the store and the disk; one
// object is fetched at a time. Errors: as Storage::Open and File::ReadAt;
// UNAVAILABLE also if the object changes meanwhile.
absl::StatusOr<std::shared_ptr<const LocalCopy>> CopyToDisk(
    const std::string& url);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_LOCAL_COPY_H_
