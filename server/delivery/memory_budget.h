#ifndef BALLAST_SERVER_DELIVERY_MEMORY_BUDGET_H_
#define BALLAST_SERVER_DELIVERY_MEMORY_BUDGET_H_

#include <cstdint>
#include <unordered_map>

namespace ballast {

// Decides who may hold how many bytes of blocks. `memory` (serve.memory) is cut
// into one share for each rank that the server serves. A stream may reserve
//   - anything, while it holds nothing: no setting and no neighbour can stop
//   it;
//   - more, while it stays within one share and all together within `memory`.
// Blocks count from when they begin to be built until whoever took them has
// destroyed them.
//
// Worst case: memory + S·B bytes for S open streams and a largest block of B.
// When no block is larger than a share and every rank has one stream, the bound
// is `memory` itself.
//
// Plain values, no locks: thread-compatible.
class MemoryBudget {
 public:
  // `shares` of 0 counts as 1.
  MemoryBudget(uint64_t memory, uint32_t shares);

  // Whether stream number `stream` may hold `bytes` more; they count at once.
  bool TryReserve(uint64_t stream, uint64_t bytes);

  // Gives back what TryReserve granted, in the same portions.
  void Release(uint64_t stream, uint64_t bytes);

  uint64_t held(uint64_t stream) const;
  uint64_t total() const { return total_; }
  uint64_t share() const { return share_; }

 private:
  uint64_t memory_;
  uint64_t share_;
  uint64_t total_ = 0;
  std::unordered_map<uint64_t, uint64_t> held_;  // no entry: 0
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_MEMORY_BUDGET_H_
