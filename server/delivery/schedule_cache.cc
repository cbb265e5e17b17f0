#include "server/delivery/schedule_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

void StepGate::Begin() {
  MutexLock lock(&mutex_);
  begun_ = true;
}

absl::Status StepGate::CheckHeld(uint64_t step) const {
  if (!begun_) return absl::OkStatus();
  if (!closed_.ok()) return closed_;
  if (!held_from_.has_value() || step < *held_from_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("step ", step, " waits: ", why_));
}

absl::Status StepGate::Look(uint64_t step) const {
  MutexLock lock(&mutex_);
  return CheckHeld(step);
}

absl::Status StepGate::Enter(uint64_t step) {
  MutexLock lock(&mutex_);
  BALLAST_RETURN_IF_ERROR(CheckHeld(step));
  if (begun_ && step >= reached_below_) entered_.insert(step);
  return absl::OkStatus();
}

absl::Status StepGate::Leave(uint64_t step, bool made) {
  MutexLock lock(&mutex_);
  const auto entered = entered_.find(step);
  // Reached before, or nobody counts yet.
  if (entered == entered_.end()) return absl::OkStatus();
  entered_.erase(entered);
  if (!made || step < reached_below_) return absl::OkStatus();
  BALLAST_RETURN_IF_ERROR(CheckHeld(step));
  if (step >= kept_below_) {
    // The next change can begin after the kept steps once this server has
    // restarted, so no more are kept than a held step leaves free.
    const uint64_t below =
        std::min(std::max(step, step + kAhead), held_from_.value_or(UINT64_MAX));
    const absl::Status kept = keep_(below);
    if (!kept.ok()) {
      return absl::UnavailableError(absl::StrCat(
          "step ", step,
          " waits until serve.revisions can be written: ", kept.message()));
    }
    kept_below_ = below;
  }
  reached_below_ = std::max(step, step + 1);
  return absl::OkStatus();
}

bool StepGate::Hold(std::optional<uint64_t> first, std::string why) {
  MutexLock lock(&mutex_);
  if (first.has_value()) {
    if (*first < ReachedBelow()) return false;
    // A step that is held now may pass later only after it has been kept.
    kept_below_ = std::min(kept_below_, *first);
  }
  held_from_ = first;
  why_ = std::move(why);
  return true;
}

void StepGate::Close(absl::Status why) {
  MutexLock lock(&mutex_);
  closed_ = std::move(why);
}

void StepGate::Raise(uint64_t below) {
  MutexLock lock(&mutex_);
  reached_below_ = std::max(reached_below_, below);
}

uint64_t StepGate::reached_below() const {
  MutexLock lock(&mutex_);
  return ReachedBelow();
}

uint64_t StepGate::ReachedBelow() const {
  if (entered_.empty()) return reached_below_;
  const uint64_t last = *entered_.rbegin();
  return std::max({reached_below_, last, last + 1});
}

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
