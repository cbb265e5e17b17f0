#ifndef BALLAST_CLIENT_BUFFER_POOL_H_
#define BALLAST_CLIENT_BUFFER_POOL_H_

#include <cstdint>
#include <list>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/memory_region.h"
#include "common/aligned_buffer.h"
#include "common/extent_allocator.h"
#include "common/mutex.h"

namespace ballast {

// Memory for blocks that come in chunks. Buffers are places in one region,
// which is mapped for the first buffer and kept, since fresh memory costs a
// page fault every 4 KiB and pinning costs more. A buffer that does not fit
// there gets its own memory, which is freed with it. Thread-safe. Must outlive
// its buffers; the region may outlive it.
class BufferPool {
 public:
  struct Buffer {
    // The requested number of bytes, uninitialised; begin at a multiple of 256.
    absl::Span<uint8_t> bytes;
    AlignedBuffer own;  // holds them outside the region
  };

  // `region_bytes` is rounded up to whole pages; at most 1 TiB is used.
  explicit BufferPool(uint64_t region_bytes);

  // Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<Buffer> Take(uint64_t bytes);
  // Gives back a buffer from Take.
  void Return(Buffer buffer);

  // Size of the region, mapped or not.
  uint64_t region_bytes() const { return region_bytes_; }

  // The region that holds the buffer; null if the buffer has its own memory.
  std::shared_ptr<const MemoryRegion> RegionOf(const Buffer& buffer) const;

 private:
  class Region;

  mutable Mutex mutex_;
  bool tried_ ABSL_GUARDED_BY(mutex_) = false;  // to map the region
  std::shared_ptr<const Region> region_ ABSL_GUARDED_BY(mutex_);
  ExtentAllocator places_ ABSL_GUARDED_BY(mutex_);
  const uint64_t region_bytes_;
};

// The pools of one client's fetchers. A released pool passes to the next
// fetcher that needs a region of its size, so that a rank that reconnects, or
// whose trainer opens a stream for each task, need not fault in and pin its
// pages again. Thread-safe; pools may outlive it.
class BufferPools {
 public:
  BufferPools();

  // Returns an unused pool. It comes back when its last owner releases it; all
  // its buffers must have been returned by then. The latest kMostIdle unused
  // pools are kept with their regions.
  static constexpr size_t kMostIdle = 2;
  std::shared_ptr<BufferPool> Take(uint64_t region_bytes);

 private:
  struct Idle {
    Mutex mutex;
    std::list<std::unique_ptr<BufferPool>> pools ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<Idle> idle_;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_BUFFER_POOL_H_
