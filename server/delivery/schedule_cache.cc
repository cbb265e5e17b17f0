#include "server/delivery/schedule_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

ScheduleCache::ScheduleCache(const Scheduler* scheduler, size_t capacity,
                             ActiveSamples* active, StepGate* gate)
    : scheduler_(scheduler),
      capacity_(std::max<size_t>(capacity, 1)),
      active_(active),
      gate_(gate) {}

absl::StatusOr<ScheduleCache::Shared> ScheduleCache::Compute(
    uint64_t step) const {
  ActiveSample work;
  work.stage = "looking samples up in the index";
  work.step = step;
  work.split = scheduler_->job().split();
  const ActiveSamples::Scope scope(active_, work);
  BALLAST_ASSIGN_OR_RETURN(v1::StepSchedule schedule,
                           scheduler_->Schedule(step));
  return std::make_shared<const v1::StepSchedule>(std::move(schedule));
}

// Moves the step to the front.
std::shared_ptr<ScheduleCache::CachedStep> ScheduleCache::Find(uint64_t step) {
  const auto found = std::find_if(
      steps_.begin(), steps_.end(),
      [step](const std::shared_ptr<CachedStep>& e) { return e->step == step; });
  if (found == steps_.end()) return nullptr;
  steps_.splice(steps_.begin(), steps_, found);
  return steps_.front();
}

absl::StatusOr<ScheduleCache::Shared> ScheduleCache::Await(
    const CachedStep& cached) {
  while (!cached.schedule.has_value()) computed_.Wait(&mutex_);
  return *cached.schedule;
}

absl::StatusOr<std::shared_ptr<const v1::StepSchedule>> ScheduleCache::Peek(
    uint64_t step) {
  if (gate_ != nullptr) BALLAST_RETURN_IF_ERROR(gate_->Look(step));
  {
    MutexLock lock(&mutex_);
    // Held during the wait, since it may be dropped from the list meanwhile.
    const std::shared_ptr<CachedStep> cached = Find(step);
    if (cached != nullptr) {
      absl::StatusOr<Shared> schedule = Await(*cached);
      // A step that could not be kept can be looked at all the same.
      if (schedule.ok()) return schedule;
    }
  }
  return Compute(step);
}

ScheduleCache::Uses ScheduleCache::uses() const {
  MutexLock lock(&mutex_);
  return uses_;
}

absl::Status ScheduleCache::Leave(uint64_t step, bool made) {
  return gate_ == nullptr ? absl::OkStatus() : gate_->Leave(step, made);
}

absl::StatusOr<std::shared_ptr<const v1::StepSchedule>> ScheduleCache::Get(
    uint64_t step) {
  if (gate_ != nullptr) BALLAST_RETURN_IF_ERROR(gate_->Enter(step));
  return GetEntered(step);
}

absl::StatusOr<ScheduleCache::Shared> ScheduleCache::GetEntered(uint64_t step) {
  std::shared_ptr<CachedStep> cached;
  std::optional<absl::StatusOr<Shared>> schedule;
  {
    MutexLock lock(&mutex_);
    cached = Find(step);
    if (cached != nullptr) {
      ++uses_.found;
      schedule = Await(*cached);
    } else {
      ++uses_.computed;
      cached = std::make_shared<CachedStep>(CachedStep{step, std::nullopt});
      steps_.push_front(cached);
      if (steps_.size() > capacity_) steps_.pop_back();
    }
  }
  if (schedule.has_value()) {  // the caller that computed it has left
    BALLAST_RETURN_IF_ERROR(Leave(step, schedule->ok()));
    return *std::move(schedule);
  }

  schedule = Compute(step);
  // Others see it only once the step is reached. A step that is refused here
  // may belong to a change by the time that it is asked for again.
  const absl::Status left = Leave(step, schedule->ok());
  if (schedule->ok() && !left.ok()) schedule = left;
  {
    MutexLock lock(&mutex_);
    cached->schedule = schedule;
    // Errors are not cached: the next call may succeed.
    if (!schedule->ok()) steps_.remove(cached);
  }
  computed_.NotifyAll();
  return *std::move(schedule);
}

}  // namespace ballast
