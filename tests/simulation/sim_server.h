#ifndef BALLAST_TESTS_SIMULATION_SIM_SERVER_H_
#define BALLAST_TESTS_SIMULATION_SIM_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include <grpcpp/server_context.h>

#include "absl/status/statusor.h"
#include "server/delivery/loader.h"
#include "server/pull/pull_limits.h"
#include "server/service/loader_service.h"
#include "tests/fakes/synthetic_schedule.h"
#include "tests/simulation/sim_data.h"
#include "tests/simulation/sim_network.h"

namespace ballast {

// One process of a loader server: the real Loader with its worker threads, and
// the real LoaderService, on a node of the simulated network.
class SimServer {
 public:
  struct Options {
    std::string address;
    int machine = 0;
    SyntheticJob job;
    SimBuilderOptions data;
    // The version that its fingerprint claims.
    int fingerprint_version = 0;
    uint64_t memory = 0;
    uint32_t threads = 2;
    uint32_t prefetch_steps = 2;
    bool encoders_first = false;
    // A folder for its arena; empty: blocks are sent over the stream.
    std::string arena;
  };

  // Listens at once. `network` and `disk` outlive it.
  SimServer(const Options& options, SimNetwork* network, const SimDisk* disk);
  // Ends like a killed process if Drain has not ended it; waits until its
  // threads have ended.
  ~SimServer();

  int node() const { return node_; }
  // SIGTERM: its streams end; waits for at most 10 s.
  void Drain();

  // The RPCs, on threads of its node.
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Pull(
      grpc::CallbackServerContext* context) {
    return service_->Pull(context);
  }
  absl::StatusOr<v1::AttachResponse> Attach(const v1::AttachRequest& request);
  void GetSchedule(uint64_t step, Loader::ScheduleAnswer answer) {
    loader_->GetSchedule(step, std::move(answer));
  }

  // Bytes of blocks beyond the bound of block_ledger.h; 0 if it holds.
  uint64_t MemoryBeyondBound() const;

 private:
  const Options options_;
  SimNetwork& network_;
  const int node_;
  const std::unique_ptr<Scheduler> scheduler_;
  CallCount calls_;
  std::shared_ptr<Loader> loader_;
  std::unique_ptr<LoaderServiceImpl> service_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_SERVER_H_
