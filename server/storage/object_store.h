#ifndef BALLAST_SERVER_STORAGE_OBJECT_STORE_H_
#define BALLAST_SERVER_STORAGE_OBJECT_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/corpus/file_stamp.h"

namespace ballast {

// An object of a store, or a folder that holds some.
struct StoreEntry {
  std::string path;
  uint64_t size = 0;  // of an object
  bool is_folder = false;
};

// A store of objects, such as S3. Paths are StoreUrl::path. Thread-safe; every
// call blocks for at most a bounded number of attempts, each with a time-out.
//
// Errors of all calls: NOT_FOUND (no such bucket or object); UNAVAILABLE (all
// else: the store cannot be reached, is busy, or refuses the credentials), with
// advice. No message holds a credential.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // The objects and folders directly in `folder`, in any order; if `recursive`
  // all objects below it, without the folders. A folder that is not there is
  // empty.
  virtual absl::StatusOr<std::vector<StoreEntry>> List(
      const std::string& folder, bool recursive) = 0;

  // The present state of the object.
  virtual absl::StatusOr<FileStamp> Stat(const std::string& path) = 0;

  // Reads exactly `size` bytes at `offset` into `out`, of whatever version the
  // object has now. `object_size` is that of its stamp. UNAVAILABLE also if the
  // object is shorter.
  virtual absl::Status Read(const std::string& path, uint64_t object_size,
                            uint64_t offset, uint64_t size, char* out) = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_OBJECT_STORE_H_
