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

// The WatchSchedule calls of a server. A call holds at most one schedule: it
// asks the loader's workers for the next when the one before has been written.
// Thread-safe. Must outlive the gRPC server.
class ScheduleWatches {
 public:
  static constexpr size_t kMaxOpen = WatchSet<ScheduleWatch>::kMaxOpen;

  // Not owned; both must outlive this. `calls` counts the open calls.
  ScheduleWatches(Loader* loader, CallCount* calls)
      : loader_(loader), calls_(calls) {}
  ~ScheduleWatches();

  // Never null; owned by this until gRPC is done with it. Beyond kMaxOpen
  // calls it ends with RESOURCE_EXHAUSTED.
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
