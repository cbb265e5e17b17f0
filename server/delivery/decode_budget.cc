#include "server/delivery/decode_budget.h"

#include <algorithm>

#include "absl/status/status.h"
#include "server/media/image/image.h"

namespace ballast {

absl::StatusOr<DecodeBudget::Lease> DecodeBudget::Take(uint64_t bytes) {
  bytes = std::min(bytes, bytes_);
  MutexLock lock(&mutex_);
  const uint64_t number = next_++;
  while (!is_closed_ && (number != first_ || bytes > bytes_ - in_use_)) {
    changed_.Wait(&mutex_);
  }
  if (is_closed_) {
    return absl::CancelledError("no more is decoded: the server ends");
  }
  in_use_ += bytes;
  ++first_;
  // The rest may be enough for the next caller.
  if (first_ != next_) changed_.NotifyAll();
  return Lease(this, bytes);
}

void DecodeBudget::Return(uint64_t bytes) {
  MutexLock lock(&mutex_);
  in_use_ -= bytes;
  if (first_ != next_) changed_.NotifyAll();
}

void DecodeBudget::Close() {
  MutexLock lock(&mutex_);
  is_closed_ = true;
  changed_.NotifyAll();
}

DecodeBudget::Usage DecodeBudget::usage() const {
  MutexLock lock(&mutex_);
  return {in_use_, is_closed_ ? 0 : next_ - first_};
}

uint64_t DecodeBudgetBytes(uint64_t decode_memory, uint64_t machine_bytes) {
  return std::max(decode_memory != 0 ? decode_memory : machine_bytes / 4,
                  kMaxImageMemory);
}

}  // namespace ballast
