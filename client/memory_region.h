#ifndef BALLAST_CLIENT_MEMORY_REGION_H_
#define BALLAST_CLIENT_MEMORY_REGION_H_

#include <cstdint>

#include "absl/types/span.h"

namespace ballast {

// Host memory that blocks lie in, many over time: the server's arena, mapped,
// or the client's own. It is there for as long as somebody holds it (blocks
// do), so whoever pins memory for a GPU pins a region once, and not block by
// block, and holds it for as long as it is pinned. Thread-safe.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;

  // Whole pages, at a multiple of a page. Blocks lie in it wherever they fit.
  virtual absl::Span<const uint8_t> bytes() const = 0;

  // Whether it is mapped for reading only: to be pinned with
  // cudaHostRegisterReadOnly, without which that is refused.
  virtual bool read_only() const = 0;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_MEMORY_REGION_H_
