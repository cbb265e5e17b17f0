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

// Memory for blocks that come in chunks: places in one region, which is mapped
// when the first is needed and kept, since fresh memory costs a page fault
// every 4 KiB and pinning it costs more. What finds no place there gets memory
// of its own, which is freed with it. Thread-safe. Must outlive its buffers;
// the region may outlive it.
class BufferPool {
 public:
  struct Buffer {
    // As many as were asked for; begin at a multiple of 256; hold anything.
    absl::Span<uint8_t> bytes;
    AlignedBuffer own;  // where they lie outside the region
  };

  // Bytes of the region, rounded up to whole pages; at most 1 TiB of them are
  // used.
  explicit BufferPool(uint64_t region_bytes);

  // Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<Buffer> Take(uint64_t bytes);
  // Gives back what Take answered.
  void Return(Buffer buffer);

  // Bytes that the region has, or would have.
  uint64_t region_bytes() const { return region_bytes_; }

  // What the buffer lies in; null where that is memory of its own.
  std::shared_ptr<const MemoryRegion> RegionOf(const Buffer& buffer) const;

 private:
  class Region;

  mutable Mutex mutex_;
  bool tried_ ABSL_GUARDED_BY(mutex_) = false;  // to map it
  std::shared_ptr<const Region> region_ ABSL_GUARDED_BY(mutex_);
  ExtentAllocator places_ ABSL_GUARDED_BY(mutex_);
  const uint64_t region_bytes_;
};

// The pools of one client's fetchers. A fetcher's pool goes to the next one
// that wants a region of that size, so that a rank that connects again, or
// whose trainer opens a stream a task, neither faults its pages in nor pins
// them anew. Thread-safe; pools may outlive it.
class BufferPools {
 public:
  BufferPools();

  // A pool that nobody else uses. It comes back here when the last owner lets
  // go of it; no buffer may be out then. So many that are not in use are kept,
  // the latest, with their regions.
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
