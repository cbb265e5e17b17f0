#ifndef BALLAST_SERVER_SERVICE_SCHEDULE_WATCHES_H_
#define BALLAST_SERVER_SERVICE_SCHEDULE_WATCHES_H_

#include <cstddef>

#include <grpcpp/support/server_callback.h>

#include "proto/schedule_service.pb.h"
#include "server/delivery/loader.h"
#include "server/pull/call_count.h"
#include "server/service/watch_set.h"

namespace ballast {

class ScheduleWatch;

// The WatchSchedule calls of a server. Each call holds at most one schedule: it
// asks the loader's workers for the next one when the previous one has been
// written. Thread-safe. Must outlive the gRPC server.
class ScheduleWatches {
 public:
  static constexpr size_t kMaxOpen = WatchSet<ScheduleWatch>::kMaxOpen;

  // Neither is owned; both must outlive this. `calls` counts the open calls.
  ScheduleWatches(Loader* loader, CallCount* calls)
      : loader_(loader), calls_(calls) {}
  ~ScheduleWatches();

  // Never returns null. This owns the call until gRPC is done with it. Beyond
  // kMaxOpen calls, the call ends with RESOURCE_EXHAUSTED.
  grpc::ServerWriteReactor<v1::WatchScheduleResponse>* Open(
      const v1::WatchScheduleRequest& request);

  // Ends all calls, present and future, with UNAVAILABLE: a call that is
  // writing ends when its schedule has been sent. Does not wait.
  void Drain();

 private:
  friend class ScheduleWatch;

  Loader* const loader_;
  CallCount* const calls_;
  WatchSet<ScheduleWatch> open_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_SCHEDULE_WATCHES_H_
