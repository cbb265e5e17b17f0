#include "server/delivery/schedule_cache.h"

#include <algorithm>
#include <utility>

namespace ballast {

ScheduleCache::ScheduleCache(const Scheduler* scheduler, size_t capacity)
    : scheduler_(scheduler), capacity_(std::max<size_t>(capacity, 1)) {}

// Moves it to the front.
std::shared_ptr<ScheduleCache::Entry> ScheduleCache::Find(uint64_t step) {
  const auto found = std::find_if(
      entries_.begin(), entries_.end(),
      [step](const std::shared_ptr<Entry>& e) { return e->step == step; });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return entries_.front();
}

absl::StatusOr<ScheduleCache::Shared> ScheduleCache::Await(const Entry& entry) {
  while (!entry.done) computed_.Wait(&mutex_);
  if (!entry.status.ok()) return entry.status;
  return entry.schedule;
}

absl::StatusOr<std::shared_ptr<const v1::StepSchedule>> ScheduleCache::Peek(
    uint64_t step) {
  {
    MutexLock lock(&mutex_);
    // Held beyond the wait, in which it may be dropped from the list.
    const std::shared_ptr<Entry> entry = Find(step);
    if (entry != nullptr) return Await(*entry);
  }
  absl::StatusOr<v1::StepSchedule> computed = scheduler_->Schedule(step);
  if (!computed.ok()) return computed.status();
  return std::make_shared<const v1::StepSchedule>(*std::move(computed));
}

ScheduleCache::Uses ScheduleCache::uses() const {
  MutexLock lock(&mutex_);
  return uses_;
}

absl::StatusOr<std::shared_ptr<const v1::StepSchedule>> ScheduleCache::Get(
    uint64_t step) {
  std::shared_ptr<Entry> entry;
  {
    MutexLock lock(&mutex_);
    entry = Find(step);
    if (entry != nullptr) {
      ++uses_.found;
      return Await(*entry);
    }
    ++uses_.computed;
    entry = std::make_shared<Entry>();
    entry->step = step;
    entries_.push_front(entry);
    if (entries_.size() > capacity_) entries_.pop_back();
  }

  absl::StatusOr<v1::StepSchedule> computed = scheduler_->Schedule(step);
  std::shared_ptr<const v1::StepSchedule> schedule;
  if (computed.ok()) {
    schedule = std::make_shared<const v1::StepSchedule>(*std::move(computed));
  }
  {
    MutexLock lock(&mutex_);
    entry->done = true;
    entry->status = computed.status();
    entry->schedule = schedule;
    // Errors are not kept: the next one to ask may fare better.
    if (schedule == nullptr) entries_.remove(entry);
  }
  computed_.NotifyAll();
  if (schedule == nullptr) return computed.status();
  return schedule;
}

}  // namespace ballast
