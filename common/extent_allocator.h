#ifndef BALLAST_COMMON_EXTENT_ALLOCATOR_H_
#define BALLAST_COMMON_EXTENT_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>

namespace ballast {

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

#endif  // BALLAST_COMMON_EXTENT_ALLOCATOR_H_
