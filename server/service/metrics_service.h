#ifndef BALLAST_SERVER_SERVICE_METRICS_SERVICE_H_
#define BALLAST_SERVER_SERVICE_METRICS_SERVICE_H_

#include <cstdint>

#include "common/clock.h"
#include "proto/metrics_service.grpc.pb.h"
#include "server/delivery/file_sample_builder.h"
#include "server/delivery/loader.h"
#include "server/delivery/stall_watch.h"

namespace ballast {

// proto/metrics_service.proto. Thread-safe. Must outlive the gRPC server that
// it is registered with.
class MetricsServiceImpl final : public v1::MetricsService::CallbackService {
 public:
  // What it tells of. Nothing is owned; all must outlive this.
  struct Sources {
    const Loader* loader = nullptr;
    const FileSampleBuilder* builder = nullptr;
    const StallWatch* stalls = nullptr;
    uint64_t memory = 0;  // serve.memory
    Clock* clock = nullptr;
  };
  explicit MetricsServiceImpl(const Sources& sources) : sources_(sources) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;

 private:
  const Sources sources_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_METRICS_SERVICE_H_
