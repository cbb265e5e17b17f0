#ifndef BALLAST_SERVER_SERVICE_SCHEDULE_SERVICE_H_
#define BALLAST_SERVER_SERVICE_SCHEDULE_SERVICE_H_

#include <atomic>

#include "proto/schedule_service.grpc.pb.h"
#include "server/delivery/loader.h"

namespace ballast {

// proto/schedule_service.proto: schedules come from the loader's cache,
// computed by its workers, so that no thread of gRPC's is held up. Thread-safe.
// Must outlive the gRPC server that it is registered with.
class ScheduleServiceImpl final : public v1::ScheduleService::CallbackService {
 public:
  // Queries that may wait for a worker; more are RESOURCE_EXHAUSTED.
  static constexpr int kMaxWaiting = 1024;

  // `loader` is not owned and must outlive this.
  explicit ScheduleServiceImpl(Loader* loader) : loader_(loader) {}

  grpc::ServerUnaryReactor* GetSchedule(
      grpc::CallbackServerContext* context,
      const v1::GetScheduleRequest* request,
      v1::GetScheduleResponse* response) override;

 private:
  Loader* const loader_;
  std::atomic<int> waiting_{0};
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_SCHEDULE_SERVICE_H_
