#ifndef BALLAST_CLIENT_MEMORY_REGION_H_
#define BALLAST_CLIENT_MEMORY_REGION_H_

#include <cstdint>

#include "absl/types/span.h"

namespace ballast {

// Host memory that holds many blocks over time: the server's arena, mapped, or
// the client's own. It lives as long as somebody holds it (blocks do). Code
// that pins memory for a GPU therefore pins a region once, not each block, and
// holds the region while it is pinned. Thread-safe.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;

  // Whole pages, at a multiple of a page. Blocks lie anywhere in it.
  virtual absl::Span<const uint8_t> bytes() const = 0;

  // Whether it is mapped read-only: pinning it needs cudaHostRegisterReadOnly.
  virtual bool read_only() const = 0;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_MEMORY_REGION_H_
