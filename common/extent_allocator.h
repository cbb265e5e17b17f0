#ifndef BALLAST_COMMON_EXTENT_ALLOCATOR_H_
#define BALLAST_COMMON_EXTENT_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>

namespace ballast {

// Places extents in the range [begin, end) of memory or a file, which it does
// not own. Each goes to the lowest hole that it fits, so that used places are
// used again, and the same calls give the same places on every machine.
// Neighbouring holes merge. A request may fail although as many bytes are free,
// in holes that are each too small. With extents of S/2 to S that go in the
// order in which they came, that happens only when at least this much of the
// range is used (measured by the test): a half for S of an eighth of the range,
// three quarters for a sixteenth, nine tenths for a sixty-fourth. Plain values:
// thread-compatible. Both calls take time in proportion to the number of holes.
class ExtentAllocator {
 public:
  // An empty range where `begin` is not below `end`.
  ExtentAllocator(uint64_t begin, uint64_t end);

  // The offset that `bytes` (at least 1) now have; nothing where no hole is
  // large enough.
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
