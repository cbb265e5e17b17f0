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

 private:
  struct Entry {
    uint64_t step;
    bool done = false;
    absl::Status status;                               // with done
    std::shared_ptr<const v1::StepSchedule> schedule;  // with done and OK
  };

  const Scheduler* scheduler_;
  const size_t capacity_;
  Mutex mutex_;
  CondVar computed_;
  // Most recently used first.
  std::list<std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_SCHEDULE_CACHE_H_
