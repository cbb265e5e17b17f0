#include "trainer_shim/cuda/staging_timer.h"

#include <algorithm>
#include <iterator>

#include "common/status_macros.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<StagingTimer>> StagingTimer::Create() {
  std::unique_ptr<StagingTimer> timer(new StagingTimer);
  BALLAST_ASSIGN_OR_RETURN(timer->begun_, Event::CreateTimed());
  for (Event& end : timer->ends_) {
    BALLAST_ASSIGN_OR_RETURN(end, Event::CreateTimed());
  }
  return timer;
}

absl::Status StagingTimer::Begin(uint64_t step, uint32_t micro_batch,
                                 cudaStream_t stream) {
  {
    MutexLock lock(&mutex_);
    ended_ = false;
    batch_ = {};
    batch_.step = step;
    batch_.micro_batch = micro_batch;
  }
  std::fill(std::begin(has_), std::end(has_), false);
  return begun_.Record(stream);
}

absl::Status StagingTimer::End(Phase phase, cudaStream_t stream) {
  BALLAST_RETURN_IF_ERROR(ends_[phase].Record(stream));
  has_[phase] = true;
  if (phase != kPack) return absl::OkStatus();
  MutexLock lock(&mutex_);
  ended_ = true;
  return absl::OkStatus();
}

std::optional<BatchTimes> StagingTimer::Take() {
  MutexLock lock(&mutex_);
  if (!ended_) return std::nullopt;
  const absl::StatusOr<bool> done = ends_[kPack].Done();
  if (!done.ok() || !*done) return std::nullopt;
  ended_ = false;
  const Event* before = &begun_;
  std::optional<absl::Duration>* const times[kPhases] = {
      &batch_.copy, &batch_.exchange, &batch_.decode, &batch_.pack};
  for (int phase = 0; phase < kPhases; ++phase) {
    if (!has_[phase]) continue;
    const absl::StatusOr<absl::Duration> taken =
        TimeBetween(*before, ends_[phase]);
    if (!taken.ok()) return std::nullopt;
    *times[phase] = *taken;
    before = &ends_[phase];
  }
  return batch_;
}

}  // namespace ballast
