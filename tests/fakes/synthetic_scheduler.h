#ifndef BALLAST_TESTS_FAKES_SYNTHETIC_SCHEDULER_H_
#define BALLAST_TESTS_FAKES_SYNTHETIC_SCHEDULER_H_

#include "server/schedule/scheduler.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {

// Returns the schedules of a synthetic job through the server's Scheduler.
class SyntheticScheduler final : public Scheduler {
 public:
  explicit SyntheticScheduler(const SyntheticJob& job)
      : synthetic_(job), job_(SyntheticJobMessage(job)) {
    fingerprint_.set_hash(kSyntheticFingerprint);
  }

  absl::StatusOr<v1::StepSchedule> Schedule(uint64_t step) const override {
    return SyntheticSchedule(synthetic_, step);
  }
  const v1::Fingerprint& fingerprint() const override { return fingerprint_; }
  const v1::Job& job() const override { return job_; }

 private:
  const SyntheticJob synthetic_;
  const v1::Job job_;
  v1::Fingerprint fingerprint_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_SYNTHETIC_SCHEDULER_H_
