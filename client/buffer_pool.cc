#include "client/buffer_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/align.h"

namespace ballast {
namespace {

// Past this, rounding up might wrap.
constexpr uint64_t kMostBytes = uint64_t{1} << 60;

// The least capacity of its class: eight classes between two powers of two.
uint64_t Capacity(uint64_t bytes) {
  constexpr uint64_t kLeast = uint64_t{4} << 10;
  uint64_t power = kLeast;
  while (power <= bytes / 2) power *= 2;
  return AlignUp(std::max(bytes, kLeast), power / 8);
}

}  // namespace

absl::StatusOr<AlignedBuffer> BufferPool::Take(uint64_t bytes) {
  if (bytes > kMostBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a buffer of ", bytes, " bytes"));
  }
  const uint64_t capacity = Capacity(bytes);
  {
    MutexLock lock(&mutex_);
    const auto fit = free_.lower_bound(capacity);
    if (fit != free_.end() && fit->first / 2 <= capacity) {
      AlignedBuffer buffer = std::move(fit->second);
      free_.erase(fit);
      return buffer;
    }
    while (!free_.empty() && bytes_ + capacity > max_bytes_) DropSmallest();
    bytes_ += capacity;
  }
  absl::StatusOr<AlignedBuffer> buffer = AlignedBuffer::Create(capacity);
  if (!buffer.ok()) {
    MutexLock lock(&mutex_);
    bytes_ -= capacity;
  }
  return buffer;
}

void BufferPool::Return(AlignedBuffer buffer) {
  MutexLock lock(&mutex_);
  const uint64_t size = buffer.size();
  free_.emplace(size, std::move(buffer));
  while (!free_.empty() && bytes_ > max_bytes_) DropSmallest();
}

uint64_t BufferPool::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

void BufferPool::DropSmallest() {
  bytes_ -= free_.begin()->first;
  free_.erase(free_.begin());
}

}  // namespace ballast
