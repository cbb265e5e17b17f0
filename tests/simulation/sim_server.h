#ifndef BALLAST_TESTS_SIMULATION_SIM_SERVER_H_
#define BALLAST_TESTS_SIMULATION_SIM_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/server_context.h>

#include "absl/status/statusor.h"
#include "client/loader_client.h"
#include "server/delivery/loader.h"
#include "server/serve/pull/pull_limits.h"
#include "server/serve/service/loader_service.h"
#include "server/serve/service/peer_check.h"
#include "server/serve/service/revision_keeper.h"
#include "tests/fakes/synthetic_schedule.h"
#include "tests/simulation/sim_data.h"
#include "tests/simulation/sim_network.h"
#include "tests/simulation/sim_revisions.h"

namespace ballast {

// One process of a loader server: the real Loader with its worker threads, and
// the real LoaderService, on a node of the simulated network.
class SimServer final : public SimProcess {
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
    // serve.revisions, the other servers and the one that decides; "": the job
    // cannot change.
    std::string revisions;
    std::vector<std::string> peers;
    std::string decider;
    // The server of topology.meeting; "": none is named, or it is this one.
    std::string meeting;
    // Called with each schedule that the server gives to a rank.
    std::function<void(const v1::StepSchedule&)> on_schedule;
    // Planted defects.
    bool no_gate = false;
    bool forgets_revisions = false;
  };

  // Listens at once, unless it dies while it starts. `network` and `disk`
  // outlive it.
  SimServer(const Options& options, SimNetwork* network, const SimDisk* disk);
  // Ends like a killed process if Drain has not ended it; waits until its
  // threads have ended.
  ~SimServer() override;

  int node() const { return node_; }
  // SIGTERM: its streams end; waits for at most 10 s.
  void Drain();

  // The RPCs, on threads of its node.
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Pull(
      grpc::CallbackServerContext* context) {
    return service_->Pull(context);
  }
  absl::StatusOr<v1::AttachResponse> Attach(const v1::AttachRequest& request);
  void GetSchedule(uint64_t step, LoaderClient::Use use,
                   Loader::ScheduleAnswer answer);
  v1::GetRevisionsResponse GetRevisions(uint64_t have) const {
    return keeper_->Known(have);
  }
  void Agree(const v1::AgreeRequest& request,
             RevisionKeeper::Answer<v1::AgreeResponse> answer) {
    keeper_->Agree(request, std::move(answer));
  }
  void Change(const v1::ChangeRequest& request,
              RevisionKeeper::Answer<v1::ChangeResponse> answer) {
    keeper_->Change(request, std::move(answer));
  }

  // Kills the process at the `writes`th write of its revisions from now on,
  // before it or after it.
  void DieAtWrite(uint32_t writes, bool before) {
    dies_at_write_ = writes;
    dies_before_ = before;
  }
  // Whether it has started and has not died.
  bool runs() const { return loader_ != nullptr && !dead_; }
  bool dead() const override { return dead_; }
  bool SurvivesWrite(bool before) override;

  // Bytes of blocks beyond the bound of block_ledger.h; 0 if it holds.
  uint64_t MemoryBeyondBound() const;

 private:
  absl::Status Start(const SimDisk* disk);
  void CompareWithMeeting();
  void Die();

  const Options options_;
  SimNetwork& network_;
  const int node_;
  const std::unique_ptr<Scheduler> scheduler_;
  bool dead_ = false;
  uint32_t dies_at_write_ = 0;
  bool dies_before_ = false;
  std::unique_ptr<RevisionKeeper> keeper_;
  CallCount calls_;
  std::shared_ptr<Loader> loader_;
  std::unique_ptr<LoaderServiceImpl> service_;
  std::unique_ptr<PeerCheck> peer_check_;  // null without `meeting`
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_SERVER_H_
