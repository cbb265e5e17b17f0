#ifndef BALLAST_SERVER_DELIVERY_SCHEDULE_CACHE_H_
#define BALLAST_SERVER_DELIVERY_SCHEDULE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/schedule.pb.h"
#include "server/delivery/stall_watchdog.h"
#include "server/delivery/step_gate.h"
#include "server/schedule/scheduler.h"

namespace ballast {

// Caches the schedules used last. All streams of a step need the same schedule,
// so the first caller computes it and the others wait. Only a step that is
// reached is cached: until then a change may begin at it and alter its
// schedule. Thread-safe.
class ScheduleCache {
 public:
  // Keeps up to `capacity` schedules (at least 1). Not owned: `scheduler`;
  // `active`, which lists each schedule while it is computed; `gate`, which
  // each step passes. The last two may be null.
  ScheduleCache(const Scheduler* scheduler, size_t capacity,
                ActiveSamples* active = nullptr, StepGate* gate = nullptr);

  // For ranks, which may train on it. Blocks while the schedule is computed.
  // Errors: as the scheduler and StepGate.
  absl::StatusOr<std::shared_ptr<const v1::StepSchedule>> Get(uint64_t step);

  // Like Get, for callers that look at many steps and train on none: a schedule
  // that is not cached is computed but not cached, so that the streams'
  // schedules stay. Errors: as the scheduler and StepGate::Look.
  absl::StatusOr<std::shared_ptr<const v1::StepSchedule>> Peek(uint64_t step);

  // How often Get found the schedule (computed or being computed), and how
  // often it computed one.
  struct Uses {
    uint64_t found = 0;
    uint64_t computed = 0;
  };
  Uses uses() const;

 private:
  using Shared = std::shared_ptr<const v1::StepSchedule>;
  struct CachedStep {
    uint64_t step;
    // Set once the step is reached, or with an error.
    std::optional<absl::StatusOr<Shared>> schedule;
  };

  // After StepGate::Enter, and with its Leave.
  absl::StatusOr<Shared> GetEntered(uint64_t step);
  absl::Status Leave(uint64_t step, bool made);
  std::shared_ptr<CachedStep> Find(uint64_t step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Shared> Compute(uint64_t step) const;
  absl::StatusOr<Shared> Await(const CachedStep& cached)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Scheduler* scheduler_;
  const size_t capacity_;
  ActiveSamples* const active_;
  StepGate* const gate_;
  mutable Mutex mutex_;
  CondVar computed_;
  Uses uses_ ABSL_GUARDED_BY(mutex_);
  // Most recently used first.
  std::list<std::shared_ptr<CachedStep>> steps_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_SCHEDULE_CACHE_H_
