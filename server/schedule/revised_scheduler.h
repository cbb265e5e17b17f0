#ifndef BALLAST_SERVER_SCHEDULE_REVISED_SCHEDULER_H_
#define BALLAST_SERVER_SCHEDULE_REVISED_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "proto/revision.pb.h"
#include "proto/schedule.pb.h"
#include "server/schedule/scheduler.h"

namespace ballast {

// The scheduler of train of a job that is changed while it runs: each step
// comes from the scheduler of its revision. Other splits are those of the job's
// own configuration, which is also that of fingerprint() and job().
// Thread-safe.
class RevisedScheduler final : public Scheduler {
 public:
  // `own` is that of the job's own configuration. Neither it nor the others are
  // owned, and all outlive this.
  explicit RevisedScheduler(const Scheduler* own) : own_(own) {}

  // Steps from `first_step` on, which is above that of each Add before, come
  // from `scheduler`.
  void Add(uint64_t first_step, const Scheduler* scheduler);

  absl::StatusOr<v1::StepSchedule> Schedule(uint64_t step) const override {
    return At(step).Schedule(step);
  }
  const v1::Fingerprint& fingerprint() const override {
    return own_->fingerprint();
  }
  const v1::Job& job() const override { return own_->job(); }
  const v1::Job& job_at(uint64_t step) const override { return At(step).job(); }
  absl::StatusOr<v1::GetMixtureResponse> MixtureBefore(
      uint64_t step) const override {
    return At(step).MixtureBefore(step);
  }
  OrderedSample OrderedAt(uint64_t position) const override;
  std::vector<v1::Revision> revisions() const override;

 protected:
  const Scheduler* Find(v1::Split split) const override;

 private:
  struct Revision {
    uint64_t first_step;
    uint64_t first_position;
    const Scheduler* scheduler;
  };
  const Scheduler& At(uint64_t step) const;

  const Scheduler* const own_;
  mutable Mutex mutex_;
  std::vector<Revision> revisions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_REVISED_SCHEDULER_H_
