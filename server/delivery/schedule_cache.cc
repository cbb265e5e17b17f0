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
  if (step < held_from_) return absl::OkStatus();
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
        std::min(step < kNone - kAhead ? step + kAhead : kNone, held_from_);
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

bool StepGate::Hold(uint64_t first, std::string why) {
  MutexLock lock(&mutex_);
  if (first < ReachedBelow()) return false;
  held_from_ = first;
  // A step that is held now may pass later only after it has been kept.
  kept_below_ = std::min(kept_below_, first);
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
  if (gate_ == nullptr) return GetEntered(step);
  BALLAST_RETURN_IF_ERROR(gate_->Enter(step));
  absl::StatusOr<Shared> schedule = GetEntered(step);
  BALLAST_RETURN_IF_ERROR(gate_->Leave(step, schedule.ok()));
  return schedule;
}

absl::StatusOr<ScheduleCache::Shared> ScheduleCache::GetEntered(uint64_t step) {
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
