#include "server/schedule/revised_scheduler.h"

#include "proto/schedule/split.h"

namespace ballast {

void RevisedScheduler::Add(uint64_t first_step, const Scheduler* scheduler) {
  // The steps of a revision have positions: ComposeRevision and CheckRevision
  // have seen to that.
  const uint64_t position =
      FirstPosition(scheduler->job(), first_step).value_or(UINT64_MAX);
  MutexLock lock(&mutex_);
  revisions_.push_back({first_step, position, scheduler});
}

const Scheduler& RevisedScheduler::At(uint64_t step) const {
  MutexLock lock(&mutex_);
  for (auto each = revisions_.rbegin(); each != revisions_.rend(); ++each) {
    if (each->first_step <= step) return *each->scheduler;
  }
  return *own_;
}

Scheduler::OrderedSample RevisedScheduler::OrderedAt(uint64_t position) const {
  const Scheduler* scheduler = own_;
  {
    MutexLock lock(&mutex_);
    for (const Revision& each : revisions_) {
      if (each.first_position <= position) scheduler = each.scheduler;
    }
  }
  return scheduler->OrderedAt(position);
}

std::vector<v1::Revision> RevisedScheduler::revisions() const {
  MutexLock lock(&mutex_);
  std::vector<v1::Revision> revisions;
  for (const Revision& each : revisions_) {
    v1::Revision& revision = revisions.emplace_back();
    revision.set_first_step(each.first_step);
    *revision.mutable_fingerprint() = each.scheduler->fingerprint();
  }
  return revisions;
}

const Scheduler* RevisedScheduler::Find(v1::Split split) const {
  if (split == job().split()) return this;
  return own_->OfSplit(split).value_or(this);
}

}  // namespace ballast
