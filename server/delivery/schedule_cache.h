#ifndef BALLAST_SERVER_DELIVERY_SCHEDULE_CACHE_H_
#define BALLAST_SERVER_DELIVERY_SCHEDULE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/schedule.pb.h"
#include "server/schedule/scheduler.h"

namespace ballast {

// The schedules used last. All streams of a step need the same one, so it is
// computed once, by whoever asks first; the others wait. Thread-safe.
class ScheduleCache {
 public:
  // Keeps up to `capacity` schedules (at least 1). `scheduler` is not owned.
  ScheduleCache(const Scheduler* scheduler, size_t capacity);

  // Blocks while the schedule is computed. Errors: the scheduler's.
  absl::StatusOr<std::shared_ptr<const v1::StepSchedule>> Get(uint64_t step);

  // The same for who passes through many steps: one that is not kept is
  // computed and not kept either, so that the streams' stay.
  absl::StatusOr<std::shared_ptr<const v1::StepSchedule>> Peek(uint64_t step);

  // How often Get found the schedule, or one who was computing it, and how
  // often it had it computed.
  struct Uses {
    uint64_t found = 0;
    uint64_t computed = 0;
  };
  Uses uses() const;

 private:
  using Shared = std::shared_ptr<const v1::StepSchedule>;
  struct Entry {
    uint64_t step;
    bool done = false;
    absl::Status status;                               // with done
    std::shared_ptr<const v1::StepSchedule> schedule;  // with done and OK
  };

  std::shared_ptr<Entry> Find(uint64_t step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Shared> Await(const Entry& entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Scheduler* scheduler_;
  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar computed_;
  Uses uses_ ABSL_GUARDED_BY(mutex_);
  // Most recently used first.
  std::list<std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_SCHEDULE_CACHE_H_
