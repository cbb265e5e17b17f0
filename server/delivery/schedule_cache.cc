#include "server/delivery/schedule_cache.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"

namespace ballast {

ScheduleCache::ScheduleCache(const Scheduler* scheduler, size_t capacity,
                             ActiveSamples* active, StepGate* gate)
    : scheduler_(scheduler),
      capacity_(std::max<size_t>(capacity, 1)),
      active_(active),
      gate_(gate) {}

absl::StatusOr<v1::StepSchedule> ScheduleCache::Compute(uint64_t step) const {
  ActiveSample work;
  work.stage = "looking samples up in the index";
  work.step = step;
  work.split = scheduler_->job().split();
  const ActiveSamples::Scope scope(active_, work);
  return scheduler_->Schedule(step);
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
  while (!cached.done) computed_.Wait(&mutex_);
  if (!cached.status.ok()) return cached.status;
  return cached.schedule;
}

absl::StatusOr<std::shared_ptr<const v1::StepSchedule>> ScheduleCache::Peek(
    uint64_t step) {
  if (gate_ != nullptr) BALLAST_RETURN_IF_ERROR(gate_->Look(step));
  {
    MutexLock lock(&mutex_);
    // Held during the wait, since it may be dropped from the list meanwhile.
    const std::shared_ptr<CachedStep> cached = Find(step);
    if (cached != nullptr) return Await(*cached);
  }
  absl::StatusOr<v1::StepSchedule> computed = Compute(step);
  if (!computed.ok()) return computed.status();
  return std::make_shared<const v1::StepSchedule>(*std::move(computed));
}

ScheduleCache::Uses ScheduleCache::uses() const {
  MutexLock lock(&mutex_);
  return uses_;
}

absl::StatusOr<std::shared_ptr<const v1::StepSchedule>> ScheduleCache::Get(
    uint64_t step) {
  if (gate_ != nullptr) BALLAST_RETURN_IF_ERROR(gate_->Enter(step));
  std::shared_ptr<CachedStep> cached;
  {
    MutexLock lock(&mutex_);
    cached = Find(step);
    if (cached != nullptr) {
      ++uses_.found;
      return Await(*cached);
    }
    ++uses_.computed;
    cached = std::make_shared<CachedStep>();
    cached->step = step;
    steps_.push_front(cached);
    if (steps_.size() > capacity_) steps_.pop_back();
  }

  absl::StatusOr<v1::StepSchedule> computed = Compute(step);
  std::shared_ptr<const v1::StepSchedule> schedule;
  if (computed.ok()) {
    schedule = std::make_shared<const v1::StepSchedule>(*std::move(computed));
  }
  {
    MutexLock lock(&mutex_);
    cached->done = true;
    cached->status = computed.status();
    cached->schedule = schedule;
    // Errors are not cached: the next call may succeed.
    if (schedule == nullptr) steps_.remove(cached);
  }
  computed_.NotifyAll();
  if (schedule == nullptr) return computed.status();
  return schedule;
}

}  // namespace ballast
