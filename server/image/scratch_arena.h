#ifndef BALLAST_SERVER_IMAGE_SCRATCH_ARENA_H_
#define BALLAST_SERVER_IMAGE_SCRATCH_ARENA_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Working memory for one image at a time: allocated piece by piece, released
// all at once, and kept for the next image, so that images of the usual size
// never reach the allocator. Thread-compatible.
class ScratchArena {
 public:
  // Allocates at most `limit` bytes at a time; at most `keep` bytes survive
  // Reset.
  ScratchArena(uint64_t limit, uint64_t keep)
      : most_(limit), keep_(keep), limit_(limit) {}
  ScratchArena(const ScratchArena&) = delete;
  ScratchArena& operator=(const ScratchArena&) = delete;

  // Uninitialised memory at a multiple of 64 bytes, valid until Reset. nullptr:
  // over the limit, or the system is out of memory.
  void* Allocate(uint64_t bytes);
  template <class T>
  T* AllocateArray(uint64_t count) {
    return count > UINT64_MAX / sizeof(T)
               ? nullptr
               : static_cast<T*>(Allocate(count * sizeof(T)));
  }

  // Releases everything.
  void Reset();

  // Sets the limit from now on; at most the constructor's.
  void SetLimit(uint64_t limit) { limit_ = std::min(limit, most_); }

  // Why Allocate returned nullptr for `work`: a data fault if that would exceed
  // the limit, RESOURCE_EXHAUSTED if the system is out of memory.
  absl::Status Refusal(absl::string_view work) const;

  uint64_t limit() const { return limit_; }
  // Bytes allocated since Reset, padding included.
  uint64_t used() const { return used_; }
  // Bytes held from the system.
  uint64_t held() const;
  // How often memory was requested from the system.
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

  const uint64_t most_;
  const uint64_t keep_;
  uint64_t limit_;
  std::vector<Block> blocks_;  // pieces come from the last one
  uint64_t used_ = 0;
  uint64_t system_allocations_ = 0;
  bool is_system_out_ = false;  // of memory, since Reset
};

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_SCRATCH_ARENA_H_
