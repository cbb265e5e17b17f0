#ifndef BALLAST_CLIENT_BUFFER_POOL_H_
#define BALLAST_CLIENT_BUFFER_POOL_H_

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "common/aligned_buffer.h"
#include "common/mutex.h"

namespace ballast {

// Buffers for blocks, used again and again, since fresh memory costs a page
// fault every 4 KiB. Capacities come in classes an eighth apart, so that blocks
// of about the same size share. Thread-safe.
class BufferPool {
 public:
  // Keeps buffers that are not in use only as long as all buffers together,
  // those in use included, come to at most `max_bytes`.
  explicit BufferPool(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // A buffer of at least `bytes` and at most about twice as much. Its content
  // is arbitrary. Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<AlignedBuffer> Take(uint64_t bytes);
  // Gives back a buffer that Take answered.
  void Return(AlignedBuffer buffer);

  // Of all buffers, in use or not.
  uint64_t bytes() const;

 private:
  void DropSmallest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t max_bytes_;
  mutable Mutex mutex_;
  // By size.
  std::multimap<uint64_t, AlignedBuffer> free_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_BUFFER_POOL_H_
