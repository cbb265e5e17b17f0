#ifndef BALLAST_SERVER_SERVE_SERVICE_SCHEDULE_SERVICE_H_
#define BALLAST_SERVER_SERVE_SERVICE_SCHEDULE_SERVICE_H_

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "proto/schedule.pb.h"
#include "proto/schedule_service.grpc.pb.h"
#include "proto/schedule_service.pb.h"
#include "server/delivery/loader.h"
#include "server/serve/pull/pull_limits.h"
#include "server/serve/pull/stream_reactor.h"
#include "server/serve/service/unread_answers.h"

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

// Implements proto/schedule_service.proto. Schedules come from the loader's
// cache and are computed by its workers, so no thread of gRPC's blocks. Those
// that clients do not read are bounded: UnreadAnswers for GetSchedule, one for
// each WatchSchedule. Thread-safe. Must outlive the gRPC server that it is
// registered with.
class ScheduleServiceImpl final : public v1::ScheduleService::CallbackService {
 public:
  // Limit of queries waiting for a worker; more end with RESOURCE_EXHAUSTED.
  static constexpr int kMaxWaiting = 1024;

  // Neither is owned; both must outlive this. `calls` counts open WatchSchedule
  // calls.
  ScheduleServiceImpl(Loader* loader, CallCount* calls)
      : loader_(loader), watches_(loader, calls) {}

  grpc::ServerUnaryReactor* GetSchedule(
      grpc::CallbackServerContext* context,
      const v1::GetScheduleRequest* request,
      v1::GetScheduleResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchScheduleResponse>* WatchSchedule(
      grpc::CallbackServerContext* context,
      const v1::WatchScheduleRequest* request) override;

  // Ends the watches with UNAVAILABLE.
  void Drain() { watches_.Drain(); }

 private:
  Loader* const loader_;
  std::atomic<int> waiting_{0};
  UnreadAnswers answers_;
  ScheduleWatches watches_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_SCHEDULE_SERVICE_H_
