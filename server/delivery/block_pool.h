#ifndef BALLAST_SERVER_DELIVERY_BLOCK_POOL_H_
#define BALLAST_SERVER_DELIVERY_BLOCK_POOL_H_

#include <cstdint>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/aligned_buffer.h"
#include "common/mutex.h"

namespace ballast {

// Memory of blocks, kept for reuse: the first touch of fresh pages costs more
// than filling them. Buffers come in few sizes so that one fits the next block.
// Idle buffers are freed, longest idle first, as soon as they and those in use
// would exceed `max_bytes` together. Thread-safe; never blocks for long.
class BlockPool {
 public:
  explicit BlockPool(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // What a block of `bytes` takes up: at most an eighth (or 4 KiB) more.
  static uint64_t Capacity(uint64_t bytes);

  // Capacity(bytes) bytes, which hold anything. Errors: RESOURCE_EXHAUSTED (the
  // system has no memory).
  absl::StatusOr<AlignedBuffer> Take(uint64_t bytes);

  // Every buffer taken comes back here.
  void GiveBack(AlignedBuffer buffer);

  uint64_t idle_bytes() const;

 private:
  const uint64_t max_bytes_;
  mutable Mutex mutex_;
  // Longest idle first.
  std::deque<AlignedBuffer> idle_ ABSL_GUARDED_BY(mutex_);
  uint64_t idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_BLOCK_POOL_H_
