#ifndef BALLAST_SERVER_SERVE_SERVICE_ORDER_SERVICE_H_
#define BALLAST_SERVER_SERVE_SERVICE_ORDER_SERVICE_H_

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "proto/order_service.grpc.pb.h"
#include "proto/schedule.pb.h"
#include "server/delivery/loader.h"
#include "server/sample/sample_source.h"
#include "server/schedule/scheduler.h"
#include "server/serve/service/unread_answers.h"

namespace ballast {

// Finds a sample of a schedule by the number of its source in the configuration
// and its number in the source's index, without touching the disk.
using SampleLocator = std::function<SampleLocation(
    const v1::StepSchedule& schedule, uint32_t source, uint64_t ordinal)>;

// Implements proto/order_service.proto. Schedules come from the loader's
// workers, so no thread of gRPC's blocks on the disk. Thread-safe. Must outlive
// the gRPC server that it is registered with.
class OrderServiceImpl final : public v1::OrderService::CallbackService {
 public:
  // Limit of GetSamples calls waiting for a worker; more end with
  // RESOURCE_EXHAUSTED.
  static constexpr int kMaxWaiting = 64;
  // Limit of samples in one answer.
  static constexpr uint32_t kMaxSamples = 4096;

  // `scheduler` is the scheduler of train. It and `loader` are not owned and
  // must outlive this.
  OrderServiceImpl(const Scheduler* scheduler, Loader* loader,
                   SampleLocator locate)
      : scheduler_(scheduler), loader_(loader), locate_(std::move(locate)) {}

  grpc::ServerUnaryReactor* GetMixture(
      grpc::CallbackServerContext* context,
      const v1::GetMixtureRequest* request,
      v1::GetMixtureResponse* response) override;
  grpc::ServerUnaryReactor* GetSamples(
      grpc::CallbackServerContext* context,
      const v1::GetSamplesRequest* request,
      v1::GetSamplesResponse* response) override;

 private:
  const Scheduler* const scheduler_;
  Loader* const loader_;
  const SampleLocator locate_;
  std::atomic<int> waiting_{0};
  UnreadAnswers answers_;
};

// The samples of `schedule` in order of position: at most `most` from number
// `first` on.
v1::GetSamplesResponse MakeSamplesResponse(const v1::StepSchedule& schedule,
                                           uint32_t first, uint32_t most,
                                           const SampleLocator& locate);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_ORDER_SERVICE_H_
