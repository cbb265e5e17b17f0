#ifndef BALLAST_CLIENT_SCHEDULE_WATCHER_H_
#define BALLAST_CLIENT_SCHEDULE_WATCHER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/schedule.pb.h"
#include "proto/schedule_service.grpc.pb.h"

namespace ballast {

// The schedules of consecutive steps, as a server publishes them. The server
// computes the next while one is read, and no further ahead than the
// connection's window holds. Destroying a watcher cancels it.
class ScheduleWatcher {
 public:
  virtual ~ScheduleWatcher() = default;

  // Blocks until the next step's schedule is there; nothing after the last
  // step asked for. Called from one thread. An error is final: CANCELLED (by
  // Cancel), UNAVAILABLE (the server went away or drains; another may go on),
  // INTERNAL (a schedule that is malformed, or of another step), and what the
  // server's WatchSchedule answers. Messages name the server's address.
  virtual absl::StatusOr<std::optional<v1::StepSchedule>> Next() = 0;

  // Ends a Next that is blocking, and every later one. From any thread.
  virtual void Cancel() = 0;
};

// Through ScheduleService.WatchSchedule. `stub` must outlive the watcher.
std::unique_ptr<ScheduleWatcher> MakeGrpcScheduleWatcher(
    v1::ScheduleService::Stub* stub, uint64_t from_step, uint64_t steps,
    const std::string& address);

// OK when `schedule` is of `step` and well-formed, so that callers may index by
// what it says; otherwise INTERNAL.
absl::Status CheckReceivedSchedule(const v1::StepSchedule& schedule,
                                   uint64_t step);

}  // namespace ballast

#endif  // BALLAST_CLIENT_SCHEDULE_WATCHER_H_
