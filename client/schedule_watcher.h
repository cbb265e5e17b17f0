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
// computes ahead while the client reads, as far as the connection's window
// holds. Destroying a watcher cancels it.
class ScheduleWatcher {
 public:
  virtual ~ScheduleWatcher() = default;

  // Returns the next step's schedule; blocks until it has arrived; nothing
  // after the last requested step. Must be called from one thread. Errors are
  // final: CANCELLED (by Cancel), UNAVAILABLE (the server went away or drains;
  // another may continue), INTERNAL (a schedule that is malformed or of another
  // step), and the errors of the server's WatchSchedule. Messages name the
  // server's address.
  virtual absl::StatusOr<std::optional<v1::StepSchedule>> Next() = 0;

  // Ends a blocked Next, and every later one. From any thread.
  virtual void Cancel() = 0;
};

// Through ScheduleService.WatchSchedule. `stub` must outlive the watcher.
std::unique_ptr<ScheduleWatcher> MakeGrpcScheduleWatcher(
    v1::ScheduleService::Stub* stub, uint64_t from_step, uint64_t steps,
    v1::Split split, const std::string& address);

// OK if `schedule` is of `step` of `split` and well-formed, so that callers may
// index with its values; otherwise INTERNAL.
absl::Status CheckReceivedSchedule(const v1::StepSchedule& schedule,
                                   uint64_t step, v1::Split split);

}  // namespace ballast

#endif  // BALLAST_CLIENT_SCHEDULE_WATCHER_H_
