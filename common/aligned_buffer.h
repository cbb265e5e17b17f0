#ifndef BALLAST_COMMON_ALIGNED_BUFFER_H_
#define BALLAST_COMMON_ALIGNED_BUFFER_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace ballast {

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

}  // namespace ballast

#endif  // BALLAST_COMMON_ALIGNED_BUFFER_H_
