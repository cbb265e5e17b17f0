#ifndef BALLAST_SERVER_STORAGE_SPAN_H_
#define BALLAST_SERVER_STORAGE_SPAN_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"

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

// Spans that were read from a store, of all sources of a process. Holds
// `capacity` bytes, or one span if that alone is larger, and forgets the least
// recently used first. Spans that a reader holds or reads are not counted.
// Thread-safe.
class SpanMemory {
 public:
  using SpanPtr = std::shared_ptr<const Span>;
  using Load = std::function<absl::StatusOr<SpanPtr>()>;

  explicit SpanMemory(uint64_t capacity) : capacity_(capacity) {}

  // Returns the cached span, or null. Does not block.
  SpanPtr Find(const SpanKey& key);
  // Returns the cached span, or loads it: one caller runs `load` and the others
  // wait for it. Each caller that waited for a failed load loads anew. Errors:
  // as `load`.
  absl::StatusOr<SpanPtr> Get(const SpanKey& key, const Load& load);

  // Keeps a span that was read elsewhere, unless it is cached or being loaded.
  void Put(const SpanKey& key, SpanPtr span);

  uint64_t capacity() const { return capacity_; }
  uint64_t bytes() const;

 private:
  struct Entry {
    SpanPtr span;  // null while it is being loaded
    std::list<SpanKey>::iterator used;
  };
  SpanPtr FindLocked(const SpanKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fills an entry. Returns the spans that it forgets: freeing them takes time.
  std::vector<SpanPtr> Fill(const SpanKey& key, Entry& entry, SpanPtr span)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t capacity_;
  mutable Mutex mutex_;
  CondVar loaded_;
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<SpanKey, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::list<SpanKey> used_ ABSL_GUARDED_BY(mutex_);  // latest first
};

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_SPAN_H_
