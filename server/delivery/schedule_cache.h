#ifndef BALLAST_SERVER_DELIVERY_SCHEDULE_CACHE_H_
#define BALLAST_SERVER_DELIVERY_SCHEDULE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/schedule.pb.h"
#include "server/delivery/stall_watchdog.h"
#include "server/schedule/scheduler.h"

namespace ballast {

// Keeps apart the steps that ranks have reached and those that a change of the
// configuration may still alter (docs/decisions/0086-revisions.md). A step is
// reached once its schedule exists and is given to a rank, which may train on
// it. It cannot be held from Enter on, and a step that is held does not enter.
// Thread-safe.
class StepGate {
 public:
  // Steps that are kept as reached ahead of the first that is: one write of the
  // disk for each so many steps, and as many more that a restarted server
  // cannot change.
  static constexpr uint64_t kAhead = 32;

  // Writes down that every step below `below` may have been reached, where a
  // crash cannot undo it. Called with a lock held; blocks on the disk.
  using Keep = std::function<absl::Status(uint64_t below)>;

  // Steps below `reached_below` may have been reached already.
  StepGate(uint64_t reached_below, Keep keep)
      : reached_below_(reached_below),
        kept_below_(reached_below),
        keep_(std::move(keep)) {}

  // Before Begin every step passes and none counts: for a server's rehearsal.
  void Begin();

  // Before the schedule of `step` is made. Until Leave no change can begin at
  // this step or before. Errors: UNAVAILABLE (it is held: says why); as Close
  // says.
  absl::Status Enter(uint64_t step);

  // After an Enter that was OK. If the schedule was `made`, the step is
  // reached. Errors: UNAVAILABLE (it cannot be kept); as Close says. The
  // schedule must then be given to nobody, now or later: a change may begin at
  // the step.
  absl::Status Leave(uint64_t step, bool made);

  // As Enter, for somebody who looks at the step and does not train on it: it
  // does not count as reached.
  absl::Status Look(uint64_t step) const;

  // Holds the steps from `first` on, until the next Hold; nullopt holds none.
  // Returns false, and changes nothing, if one of them may have passed.
  bool Hold(std::optional<uint64_t> first, std::string why);
  // While `why` is not OK, nothing passes: Enter and Look return it.
  void Close(absl::Status why);
  // Counts every step below `below` as reached.
  void Raise(uint64_t below);

  // The first step that no rank has reached or is about to.
  uint64_t reached_below() const;

 private:
  absl::Status CheckHeld(uint64_t step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t ReachedBelow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t reached_below_ ABSL_GUARDED_BY(mutex_);
  std::multiset<uint64_t> entered_ ABSL_GUARDED_BY(mutex_);  // not left yet
  uint64_t kept_below_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> held_from_ ABSL_GUARDED_BY(mutex_);
  std::string why_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  const Keep keep_;
};

// Caches the schedules used last. All streams of a step need the same schedule,
// so the first caller computes it and the others wait. Only a step that is
// reached is cached: until then a change may begin at it and alter its schedule.
// Thread-safe.
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
