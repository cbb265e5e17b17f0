#ifndef BALLAST_SERVER_SERVICE_SCHEDULE_WATCHES_H_
#define BALLAST_SERVER_SERVICE_SCHEDULE_WATCHES_H_

#include <cstddef>

#include <grpcpp/support/server_callback.h>

#include "proto/schedule_service.pb.h"
#include "server/delivery/loader.h"
#include "server/service/call_count.h"
#include "server/service/watch_set.h"

namespace ballast {

class WatchCall;

// The WatchSchedule calls of a server. A call holds one schedule at most: the
// next is asked of the loader's workers when the one before has been written.
// Thread-safe. Must outlive the gRPC server.
class ScheduleWatches {
 public:
  static constexpr size_t kMaxOpen = WatchSet<WatchCall>::kMaxOpen;

  // Not owned; both must outlive this. `calls` counts the open calls.
  ScheduleWatches(Loader* loader, CallCount* calls)
      : loader_(loader), calls_(calls) {}
  ~ScheduleWatches();

  // Never null; owned by this until gRPC is done with it. Ends with
  // RESOURCE_EXHAUSTED where kMaxOpen are there.
  grpc::ServerWriteReactor<v1::WatchScheduleResponse>* Open(
      const v1::WatchScheduleRequest& request);

  // Ends all calls, as well as those that come, with UNAVAILABLE: a call that
  // is writing when the schedule has been sent. Does not wait.
  void Drain();

 private:
  friend class WatchCall;

  Loader* const loader_;
  CallCount* const calls_;
  WatchSet<WatchCall> open_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_SCHEDULE_WATCHES_H_
