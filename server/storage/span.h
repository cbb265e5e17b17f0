#ifndef BALLAST_SERVER_STORAGE_SPAN_H_
#define BALLAST_SERVER_STORAGE_SPAN_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

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

  // Of the object.
  virtual const ByteRange& range() const = 0;
  // Copies bytes within the range, whose place is counted from the object's
  // start. Errors: as StoredObject::Fetch.
  virtual absl::Status ReadAt(uint64_t offset, uint64_t size,
                              char* out) const = 0;
  // Whether the cache has it, where a later Fetch will find it, too.
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

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_SPAN_H_
