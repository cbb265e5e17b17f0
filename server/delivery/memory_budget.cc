#include "server/delivery/memory_budget.h"

#include <algorithm>

namespace ballast {
namespace {

// Whether held + bytes <= limit, without wrapping.
bool Within(uint64_t held, uint64_t bytes, uint64_t limit) {
  return held <= limit && bytes <= limit - held;
}

}  // namespace

MemoryBudget::MemoryBudget(uint64_t memory, uint32_t shares)
    : memory_(memory), share_(memory / std::max(shares, 1u)) {}

bool MemoryBudget::TryReserve(uint64_t stream, uint64_t bytes) {
  const uint64_t held = this->held(stream);
  if (held != 0 &&
      !(Within(held, bytes, share_) && Within(total_, bytes, memory_))) {
    return false;
  }
  held_[stream] = held + bytes;
  total_ += bytes;
  return true;
}

void MemoryBudget::Release(uint64_t stream, uint64_t bytes) {
  const auto entry = held_.find(stream);
  if (entry == held_.end()) return;
  entry->second -= bytes;
  total_ -= bytes;
  if (entry->second == 0) held_.erase(entry);
}

uint64_t MemoryBudget::held(uint64_t stream) const {
  const auto entry = held_.find(stream);
  return entry == held_.end() ? 0 : entry->second;
}

}  // namespace ballast
