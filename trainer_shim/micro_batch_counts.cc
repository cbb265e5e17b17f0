#include "trainer_shim/micro_batch_counts.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

void MicroBatchCounts::Note(const v1::StepSchedule& schedule) {
  MutexLock lock(&mutex_);
  counts_[schedule.step()] = schedule.micro_batches_size();
  if (counts_.size() > kKnownSteps) counts_.erase(counts_.begin());
}

uint32_t MicroBatchCounts::Known(uint64_t step) const {
  MutexLock lock(&mutex_);
  const auto known = counts_.find(step);
  return known == counts_.end() ? 0 : known->second;
}

absl::StatusOr<uint32_t> MicroBatchCounts::Get(uint64_t step) {
  if (const uint32_t known = Known(step); known != 0) return known;
  MutexLock lock(&asking_);
  BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule* schedule,
                           schedules_.Get(step));
  if (schedule->micro_batches_size() == 0) {
    return absl::DataLossError(
        absl::StrCat("the schedule of step ", step, " has no micro-batch"));
  }
  return schedule->micro_batches_size();
}

}  // namespace ballast
