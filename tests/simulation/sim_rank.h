#ifndef BALLAST_TESTS_SIMULATION_SIM_RANK_H_
#define BALLAST_TESTS_SIMULATION_SIM_RANK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "tests/fakes/synthetic_schedule.h"
#include "tests/simulation/sim_client.h"
#include "tests/simulation/sim_network.h"
#include "tests/simulation/sim_plan.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/host/trainer_shim.h"

namespace ballast {

// A batch that a rank trained on.
struct TrainedBatch {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  std::vector<uint64_t> positions;  // in order of place
  std::vector<bool> placeholders;
  std::string digest;
};

// One rank in one start of the job.
struct RankHistory {
  v1::Role role;
  std::vector<TrainedBatch> batches;
  bool started = false;  // its shim was created
  absl::Status end;      // of its last call
  bool killed = false;   // from outside
};

// One start of the job.
struct RunHistory {
  uint64_t start_step = 0;
  std::vector<RankHistory> ranks;
  // Every rank must reach the end, since no fault could stop one.
  bool must_succeed = false;
};

// Whether the rank was refused at its start: its first server has other data.
inline bool WasRefused(const RankHistory& rank) {
  return !rank.started && absl::IsFailedPrecondition(rank.end);
}

// What a job promises about its ends.
struct HistoryPromises {
  SyntheticJob job;
  uint64_t steps = 0;
  // Servers with other data have been there, so a rank may say so and end.
  bool other_data = false;
  // The versions of the data, by the first step of each; 0 before them.
  std::map<uint64_t, int> versions;
};

// Holds all ranks, both modules and all starts of a job against the pure
// schedule and a run without faults. Returns each violation:
//   - a start trains on every micro-batch from its first on, in order: nothing
//     lost, repeated or reordered
//   - each batch has the samples, the places, the placeholders and the bytes of
//     the run without faults: nothing exchanged or silently replaced
//   - a start begins where all ranks of an earlier one had got to, or before
//   - a rank ends with OUT_OF_RANGE after the last step, or with a promised
//     status
//   - the last start ends after the last step on all ranks
//   - only FAILED_PRECONDITION at its start may stop a rank that no fault can:
//     its first server has other data then
std::vector<std::string> CheckHistory(const HistoryPromises& promises,
                                      const std::vector<RunHistory>& runs);

// Defects that a test plants, to show that the checker finds them.
struct SimDefects {
  // A call of Next whose batch nobody trains on, as when a signal's exception
  // comes out of it.
  bool lose_a_batch = false;
  bool train_twice = false;
  bool errors_become_placeholders = false;
  bool other_data_unnoticed = false;  // under the job's fingerprint
  bool never_give_up_a_server = false;
  bool no_second_server = false;
  bool skip_generation_check = false;  // of blocks in shared memory
  bool serve_held_steps = false;       // of a change that is not decided
  bool forget_revisions = false;       // serve.revisions is never written
  bool compare_no_servers = false;     // that are apart
};

// One rank's process: the real TrainerShim in a thread of its own node.
class SimRank {
 public:
  struct Options {
    v1::Role role;
    int machine = 0;
    uint64_t start_step = 0;
    std::vector<std::string> servers;  // addresses, in order of preference
    v1::Fingerprint fingerprint;
    ResolveHost resolve;  // of a job whose ranks spread
  };

  // Everything given outlives the rank. `trace` is called with each event.
  SimRank(const Options& options, const SimPlan& plan,
          const SimDefects& defects, SimNetwork* network,
          std::unique_ptr<Communicator> communicator,
          std::function<void(const std::string&)> trace);

  // Waits until its process has ended.
  void Join();
  // As SIGKILL: its connections break, and it trains on nothing more.
  void Kill();
  bool ended() const { return ended_; }

  int node() const { return node_; }
  const RankHistory& history() const { return history_; }
  absl::Duration longest_next() const { return longest_next_; }
  const SimHeld& held() const { return *held_; }

 private:
  void Run();
  // Lets Kill reach them; null before they end.
  void SetShim(Communicator* peers, TrainerShim* shim) {
    MutexLock lock(&mutex_);
    peers_ = peers;
    shim_ = shim;
  }
  absl::Status Train(TrainerShim* shim);
  void Record(const PackedBatch& batch);

  const Options options_;
  const SimPlan& plan_;
  const SimDefects& defects_;
  SimNetwork& network_;
  const int node_;
  std::unique_ptr<Communicator> communicator_;
  const std::function<void(const std::string&)> trace_;
  const std::shared_ptr<SimHeld> held_ = std::make_shared<SimHeld>();
  Mutex mutex_;
  Communicator* peers_ ABSL_GUARDED_BY(mutex_) = nullptr;  // the shim's
  TrainerShim* shim_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool ended_ = false;
  RankHistory history_;
  absl::Duration longest_next_;
  SimThread* thread_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_RANK_H_
