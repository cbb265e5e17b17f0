#ifndef BALLAST_SERVER_SERVICE_SCHEDULE_SERVICE_H_
#define BALLAST_SERVER_SERVICE_SCHEDULE_SERVICE_H_

#include <atomic>

#include "proto/schedule_service.grpc.pb.h"
#include "server/delivery/loader.h"
#include "server/pull/call_count.h"
#include "server/service/schedule_watches.h"

namespace ballast {

// Implements proto/schedule_service.proto. Schedules come from the loader's
// cache and are computed by its workers, so no thread of gRPC's blocks.
// Thread-safe. Must outlive the gRPC server that it is registered with.
class ScheduleServiceImpl final : public v1::ScheduleService::CallbackService {
 public:
  // Most queries waiting for a worker; more end with RESOURCE_EXHAUSTED.
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
  ScheduleWatches watches_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_SCHEDULE_SERVICE_H_
