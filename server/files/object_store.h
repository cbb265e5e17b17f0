#ifndef BALLAST_SERVER_FILES_OBJECT_STORE_H_
#define BALLAST_SERVER_FILES_OBJECT_STORE_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/load_once_cache.h"

namespace ballast {

// Bytes of a file.
struct ByteRange {
  uint64_t offset = 0;
  uint64_t size = 0;

  uint64_t end() const { return offset + size; }
  bool Covers(const ByteRange& other) const {
    return other.offset >= offset && other.size <= size &&
           other.offset - offset <= size - other.size;
  }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ByteRange& r) {
    return H::combine(std::move(h), r.offset, r.size);
  }
};

// A range of one version of an object that can be read: a Span, or bytes in the
// cache. Thread-compatible.
class StoredRange {
 public:
  virtual ~StoredRange() = default;

  // The range, within the object.
  virtual const ByteRange& range() const = 0;
  // Copies bytes within the range, whose place is counted from the object's
  // start. Errors: as StoredObject::Fetch.
  virtual absl::Status ReadAt(uint64_t offset, uint64_t size,
                              char* out) const = 0;
  // Whether the cache has it, so that a later Fetch will also find it there.
  virtual bool IsInCache() const { return false; }
  // Lets the system read a part ahead, without waiting.
  virtual void ReadSoon(ByteRange /*part*/) const {}
};

// A range of one version of an object, in memory. Immutable; thread-safe.
class Span final : public StoredRange {
 public:
  // Memory for `range`, not initialised; to be filled before it is shared.
  explicit Span(ByteRange range)
      : range_(range), bytes_(new char[range.size]) {}

  const ByteRange& range() const override { return range_; }
  absl::Status ReadAt(uint64_t offset, uint64_t size,
                      char* out) const override {
    std::memcpy(out, data() + (offset - range_.offset), size);
    return absl::OkStatus();
  }
  char* data() { return bytes_.get(); }
  const char* data() const { return bytes_.get(); }
  absl::string_view bytes() const { return {bytes_.get(), range_.size}; }
  uint64_t size() const { return range_.size; }

 private:
  const ByteRange range_;
  const std::unique_ptr<char[]> bytes_;
};

// Names a range of one version of an object: a 128-bit hash.
struct SpanKey {
  uint64_t high = 0;
  uint64_t low = 0;

  friend bool operator==(const SpanKey&, const SpanKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const SpanKey& k) {
    return H::combine(std::move(h), k.high, k.low);
  }
};

// Spans that were read from a store, of all sources of a process.
using SpanMemory = LoadOnceCache<SpanKey, Span, &Span::size>;

// Identifies one version of a file's bytes, on every machine and after every
// move of a dataset that keeps the files' times.
struct FileStamp {
  uint64_t size = 0;
  // Time of the last modification. Of an object in a store: a hash of its ETag,
  // or its time if the store has none.
  int64_t mtime_ns = 0;

  friend bool operator==(const FileStamp& a, const FileStamp& b) {
    return a.size == b.size && a.mtime_ns == b.mtime_ns;
  }
};

// A file as one machine sees it at one moment. `ctime_ns` changes with every
// write, truncation and change of the times, and no program can set it back:
// two equal states have the same bytes between them. It also changes with
// links, owners and permissions, and on every copy, so it identifies no
// version: only states a moment apart are compared. 0 of an object in a store.
struct FileState {
  FileStamp stamp;
  int64_t ctime_ns = 0;

  friend bool operator==(const FileState&, const FileState&) = default;
};

// The places that a file's bytes may come from.
enum class ReadFrom {
  // Anywhere; blocks until they have been read.
  kDisk,
  // The system's memory (page cache) only. Never waits for a disk or a network,
  // even if they hang; a read that would have to wait is ABORTED.
  kMemory,
};

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
  // object has now. `object_size` is the size in its stamp. UNAVAILABLE also if
  // the object is shorter.
  virtual absl::Status Read(const std::string& path, uint64_t object_size,
                            uint64_t offset, uint64_t size, char* out) = 0;
};

// Whether `bytes` may be fetched ahead; makes room for them if needed. Called
// before anything is read, from any thread.
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
  // Stamp of the version that was opened.
  virtual const FileStamp& stamp() const = 0;

  // Reads through a window that grows while reads follow each other
  // (store_reader.h). Does not ask whether the object has changed: IsUnchanged
  // does. The range must be within the object.
  virtual absl::Status ReadAt(uint64_t offset, uint64_t size, char* out,
                              ReadFrom from) const = 0;
  // Asks the store whether it still has the version that was opened.
  virtual absl::StatusOr<bool> IsUnchanged() const = 0;

  // A range of the version that was opened, and of no other: from memory, the
  // cache or the store; kMemory: from the cache if its bytes are in the
  // system's memory. `owner` is the sample's or row group's
  // (SampleSource::OwnerOf): the cache derives from it when the range is needed
  // again. Bytes in the cache are read, and compared with their checksums, by
  // ReadAt of the result, which is the caller's alone; if they are damaged, it
  // reads them from the store.
  virtual absl::StatusOr<std::shared_ptr<const StoredRange>> Fetch(
      ByteRange range, uint64_t owner, ReadFrom from) const = 0;
  // Whether the range is in the cache, or in memory if there is no cache. Asks
  // no store, and compares no checksums.
  virtual bool IsHere(ByteRange range, uint64_t owner) const = 0;
  // Makes a later Fetch of the range find it in the cache, or in memory if
  // there is no cache. Returns the bytes that came from the store. Further
  // error: RESOURCE_EXHAUSTED (`make_room` refused; nothing was read).
  virtual absl::StatusOr<uint64_t> FetchAhead(
      ByteRange range, uint64_t owner, const MakeRoom& make_room) const = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_FILES_OBJECT_STORE_H_
