#ifndef BALLAST_SERVER_IMAGE_SCRATCH_ARENA_H_
#define BALLAST_SERVER_IMAGE_SCRATCH_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ballast {

// Memory for the work on one image at a time: handed out piece by piece, taken
// back all at once, and kept for the next image, so that once an image of the
// usual size has been seen the allocator is left alone. Thread-compatible.
class ScratchArena {
 public:
  // At most `limit` bytes are handed out at a time; at most `keep` outlive a
  // Reset.
  ScratchArena(uint64_t limit, uint64_t keep) : limit_(limit), keep_(keep) {}
  ScratchArena(const ScratchArena&) = delete;
  ScratchArena& operator=(const ScratchArena&) = delete;

  // Uninitialised, at a multiple of 64 bytes, valid until Reset. nullptr: over
  // the limit, or the system has none.
  void* Allocate(uint64_t bytes);
  template <class T>
  T* AllocateArray(uint64_t count) {
    return count > UINT64_MAX / sizeof(T)
               ? nullptr
               : static_cast<T*>(Allocate(count * sizeof(T)));
  }

  // Takes everything back.
  void Reset();

  uint64_t limit() const { return limit_; }
  // Handed out since Reset, with what alignment costs.
  uint64_t used() const { return used_; }
  // Taken from the system.
  uint64_t held() const;
  // How often the system was asked for memory.
  uint64_t system_allocations() const { return system_allocations_; }

 private:
  struct Free {
    void operator()(uint8_t* memory) const;
  };
  struct Block {
    std::unique_ptr<uint8_t, Free> memory;
    uint64_t size = 0;
    uint64_t used = 0;
  };
  bool AddBlock(uint64_t size);

  const uint64_t limit_;
  const uint64_t keep_;
  std::vector<Block> blocks_;  // pieces come from the last one
  uint64_t used_ = 0;
  uint64_t system_allocations_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_SCRATCH_ARENA_H_
