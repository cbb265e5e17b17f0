#ifndef BALLAST_TESTS_FAKES_TEST_CLUSTER_H_
#define BALLAST_TESTS_FAKES_TEST_CLUSTER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/config/config_loader.h"
#include "trainer_shim/ballast_rank/world.h"
#include "trainer_shim/batch_info.h"
#include "trainer_shim/host/packed_batch.h"

namespace ballast {

class LoaderServer;

// A whole job in one process: real servers over real files, gRPC on Unix
// sockets, and every rank a thread with the in-process communicator.
class TestCluster {
 public:
  // Starts `servers` servers of the job that `config` describes. Fills in their
  // topology.servers and serve.listen, and adds the server's number to
  // serve.revisions: the ranks of each module are divided evenly, in order.
  // Builds the indexes first.
  static absl::StatusOr<std::unique_ptr<TestCluster>> Start(LoadedConfig config,
                                                            int servers = 1);
  ~TestCluster();

  const std::vector<std::string>& addresses() const { return addresses_; }

  // Kill ends a server without draining. Restart starts it again at the same
  // address.
  void Kill(int server);
  absl::Status Restart(int server);

  // Batches keyed by (step, micro-batch, module, rank).
  using Batches =
      std::map<std::tuple<uint64_t, uint32_t, int, uint32_t>, PackedBatch>;
  // Runs every data-parallel rank of every module that has `place`, at that
  // place, for `steps` steps from `step` on, or until the data end.
  absl::StatusOr<Batches> RunRanks(
      uint64_t step, uint64_t steps,
      const v1::Fingerprint& checkpoint = v1::Fingerprint(),
      const TrainerPlace& place = {}) const;
  // The same, one block at a time, with a call for each batch from the thread
  // of its rank.
  absl::StatusOr<Batches> RunRanks(uint64_t step, uint64_t steps,
                                   const OnBatch& on_batch) const;

 private:
  TestCluster();
  absl::StatusOr<Batches> RunRanks(uint64_t step, uint64_t steps,
                                   const v1::Fingerprint& checkpoint,
                                   const TrainerPlace& place,
                                   const OnBatch& on_batch) const;
  LoadedConfig GetConfig(int server) const;

  LoadedConfig config_;
  std::string sockets_;  // a short path: socket paths have at most 107 bytes
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<LoaderServer>> servers_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_TEST_CLUSTER_H_
