#ifndef BALLAST_COMMON_ALIGNED_BUFFER_H_
#define BALLAST_COMMON_ALIGNED_BUFFER_H_

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace ballast {

// The smallest multiple of `to` that is at least `n`. `to` must not be 0.
constexpr uint64_t AlignUp(uint64_t n, uint64_t to) {
  return (n + to - 1) / to * to;
}

// Uninitialised memory of a fixed size, which may be 0; begins at a multiple of
// 256. Movable. Thread-compatible.
class AlignedBuffer {
 public:
  static constexpr uint64_t kAlignment = 256;

  // Errors: RESOURCE_EXHAUSTED, naming the size.
  static absl::StatusOr<AlignedBuffer> Create(uint64_t size);
  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept { Swap(&other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    AlignedBuffer moved(std::move(other));
    Swap(&moved);
    return *this;
  }

  uint64_t size() const { return size_; }
  absl::Span<uint8_t> bytes() { return {data_.get(), size_}; }
  absl::Span<const uint8_t> bytes() const { return {data_.get(), size_}; }

 private:
  void Swap(AlignedBuffer* other) {
    data_.swap(other->data_);
    std::swap(size_, other->size_);
  }
  struct Free {
    void operator()(uint8_t* data) const { std::free(data); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  uint64_t size_ = 0;
};

// Places extents in the range [begin, end) of memory or of a file, which it
// does not own. Each extent goes to the lowest hole that fits, so that freed
// places are reused first, and the same calls give the same places on every
// machine. Neighbouring holes merge. A request may fail although enough bytes
// are free, if every single hole is too small. If extents have sizes of S/2 to
// S and are freed in the order of allocation, that happens only when at least
// this much of the range is in use (measured by the test): a half for S = 1/8
// of the range, three quarters for 1/16, nine tenths for 1/64. Plain values;
// thread-compatible. Both calls take time proportional to the number of holes.
class ExtentAllocator {
 public:
  // The range is empty unless `begin` is below `end`.
  ExtentAllocator(uint64_t begin, uint64_t end);

  // Allocates `bytes` (at least 1) and returns their offset; nothing if no hole
  // is large enough.
  std::optional<uint64_t> Allocate(uint64_t bytes);

  // Frees the extent that Allocate placed at `offset`.
  void Free(uint64_t offset);

  uint64_t used() const { return used_; }
  uint64_t free() const { return free_; }

 private:
  std::map<uint64_t, uint64_t> holes_;    // offset -> bytes; none touch
  std::map<uint64_t, uint64_t> extents_;  // offset -> bytes
  uint64_t used_ = 0;
  uint64_t free_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_ALIGNED_BUFFER_H_
