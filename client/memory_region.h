#ifndef BALLAST_CLIENT_MEMORY_REGION_H_
#define BALLAST_CLIENT_MEMORY_REGION_H_

#include <cstdint>

#include "absl/types/span.h"

namespace ballast {

// Host memory that holds many blocks over time: the server's arena, mapped, or
// the client's own. It lives as long as it is held; its blocks hold it. Code
// that pins memory for a GPU can therefore pin a region once instead of each
// block, and must hold the region while it is pinned. Thread-safe.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;

  // Whole pages, page-aligned. Blocks may lie anywhere in it.
  virtual absl::Span<const uint8_t> bytes() const = 0;

  // Whether it is mapped read-only: pinning it needs cudaHostRegisterReadOnly.
  virtual bool read_only() const = 0;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_MEMORY_REGION_H_
