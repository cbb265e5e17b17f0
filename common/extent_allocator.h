#ifndef BALLAST_COMMON_EXTENT_ALLOCATOR_H_
#define BALLAST_COMMON_EXTENT_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>

namespace ballast {

// Places extents in the range [begin, end) of something that is not its own:
// memory, a file. Each goes to the lowest hole that it fits, so that what was
// used before is used again, and the same calls give the same places on every
// machine. Neighbouring holes are one hole. A request may fail although as many
// bytes are free, in holes that are each too small: with extents of half to all
// of a size S that go in the order in which they came, only when at least a
// half of the range is used for S of an eighth of it, three quarters for a
// sixteenth, nine tenths for a sixty-fourth (measured by the test). Plain
// values: thread-compatible. Both calls take time in proportion to the number
// of holes.
class ExtentAllocator {
 public:
  // An empty range where `begin` is not below `end`.
  ExtentAllocator(uint64_t begin, uint64_t end);

  // Where `bytes` (at least 1) lie from now on; nothing where no hole is as
  // large.
  std::optional<uint64_t> Allocate(uint64_t bytes);

  // Ends what Allocate has answered.
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
