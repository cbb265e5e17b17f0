#ifndef BALLAST_SERVER_STORAGE_STORED_OBJECT_H_
#define BALLAST_SERVER_STORAGE_STORED_OBJECT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/corpus/file_stamp.h"
#include "server/corpus/read_from.h"
#include "server/storage/span.h"

namespace ballast {

// Whether so many bytes may be fetched ahead; makes room for them if need be.
// Called before anything is read, from any thread.
using MakeRoom = std::function<bool(uint64_t bytes)>;

// One version of an object of a store, opened for reading. Thread-safe.
//
// Errors: UNAVAILABLE (the store fails, or the object has another version by
// now), NOT_FOUND (it is gone), ABORTED (kMemory, and the bytes are not in
// memory).
class StoredObject {
 public:
  virtual ~StoredObject() = default;

  virtual const std::string& path() const = 0;
  // Of the version that was opened.
  virtual const FileStamp& stamp() const = 0;

  // Reads through a window that grows while reads follow each other
  // (range_plan.h). Does not ask whether the object has changed: IsUnchanged
  // does. The range must be within the object.
  virtual absl::Status ReadAt(uint64_t offset, uint64_t size, char* out,
                              ReadFrom from) const = 0;
  // Asks the store whether it still has the version that was opened.
  virtual absl::StatusOr<bool> IsUnchanged() const = 0;

  // A range of the version that was opened, and of no other: from memory, the
  // cache or the store; kMemory: from the cache if its bytes are in the
  // system's memory. `owner` is the sample's or row group's
  // (SampleSource::OwnerOf), by which the cache knows when it is needed again.
  // Bytes in the cache are read, and compared with their checksums, by ReadAt
  // of the result, which is the caller's alone; if they are damaged, it reads
  // them from the store.
  virtual absl::StatusOr<std::shared_ptr<const StoredRange>> Fetch(
      ByteRange range, uint64_t owner, ReadFrom from) const = 0;
  // Whether the range is in the cache, or in memory if there is no cache. Asks
  // no store, and compares no checksums.
  virtual bool IsHere(ByteRange range, uint64_t owner) const = 0;
  // Makes a later Fetch of the range find it in the cache, or in memory if
  // there is no cache. Returns the bytes that came from the store. Also
  // RESOURCE_EXHAUSTED: `make_room` refused; nothing was read then.
  virtual absl::StatusOr<uint64_t> FetchAhead(
      ByteRange range, uint64_t owner, const MakeRoom& make_room) const = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_STORED_OBJECT_H_
