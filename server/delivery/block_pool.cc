#include "server/delivery/block_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "common/align.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr uint64_t kPage = 4096;

}  // namespace

uint64_t BlockPool::Capacity(uint64_t bytes) {
  uint64_t power = kPage;
  while (power <= bytes / 2) power *= 2;
  return AlignUp(std::max(bytes, kPage), std::max(power / 8, kPage));
}

absl::StatusOr<AlignedBuffer> BlockPool::Take(uint64_t bytes) {
  const uint64_t capacity = Capacity(bytes);
  std::vector<AlignedBuffer> surplus;  // freed after the lock
  {
    MutexLock lock(&mutex_);
    used_bytes_ += capacity;
    // The one last given back is the likeliest to lie in a cache.
    for (auto idle = idle_.rbegin(); idle != idle_.rend(); ++idle) {
      if (idle->size() != capacity) continue;
      AlignedBuffer found = std::move(*idle);
      idle_.erase(std::next(idle).base());
      idle_bytes_ -= capacity;
      return found;
    }
    while (!idle_.empty() && used_bytes_ + idle_bytes_ > max_bytes_) {
      idle_bytes_ -= idle_.front().size();
      surplus.push_back(std::move(idle_.front()));
      idle_.pop_front();
    }
  }
  surplus.clear();
  absl::StatusOr<AlignedBuffer> fresh = AlignedBuffer::Create(capacity);
  if (!fresh.ok()) {
    MutexLock lock(&mutex_);
    used_bytes_ -= capacity;
    return Annotate(fresh.status(), "a block (is serve.memory too large?)");
  }
  return fresh;
}

void BlockPool::GiveBack(AlignedBuffer buffer) {
  MutexLock lock(&mutex_);
  used_bytes_ -= buffer.size();
  if (used_bytes_ + idle_bytes_ + buffer.size() > max_bytes_) return;
  idle_bytes_ += buffer.size();
  idle_.push_back(std::move(buffer));
}

uint64_t BlockPool::idle_bytes() const {
  MutexLock lock(&mutex_);
  return idle_bytes_;
}

}  // namespace ballast
