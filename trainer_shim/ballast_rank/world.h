#ifndef BALLAST_TRAINER_SHIM_BALLAST_RANK_WORLD_H_
#define BALLAST_TRAINER_SHIM_BALLAST_RANK_WORLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/failover.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/ballast_rank/lost_reports.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/trainer_place.h"

namespace ballast {

// The ranks that this process runs, all at one place of their modules: one, or
// every data-parallel rank of every module that has such a place.
struct WorldOptions {
  std::vector<std::string> servers;
  std::optional<v1::Role> role;  // empty: all
  TrainerPlace place;
  uint64_t start_step = 0;
  uint64_t steps = 1;
  v1::Fingerprint checkpoint;               // as TrainerShim's
  uint64_t max_bytes = uint64_t{64} << 20;  // of blocks, each rank
  FailoverOptions failover;
  // Reports what packing each micro-batch took, the only work that a rank does
  // here: a cost of the right shape to try `ballastctl fit-cost` with.
  bool report_timings = false;
  // Takes those that were lost; not owned, may be null.
  LostReports* lost_reports = nullptr;
  // Whether the batches handed to OnBatch have tensors. They always do with the
  // host backend; with CUDA they are then copied from the device, which takes
  // longer than all else.
  bool tensors = true;
  // Ranks of other processes take part in exchanges, as they can over NCCL.
  bool reaches_other_processes = false;
  Clock* clock = Clock::Real();
};

// The batch that a rank has just got. Borrowed for the call.
struct RankBatch {
  uint32_t rank = 0;  // number among the roles of this process
  const PackedBatch* batch = nullptr;
  const v1::StepSchedule* schedule = nullptr;  // of the batch's step
  absl::Duration next;                         // how long Next took
};
// Called by every rank's thread, so it must be thread-safe.
using OnBatch = std::function<void(const RankBatch&)>;

// Makes a client of the server at an address: LoaderClient::Create.
using MakeClient =
    std::function<std::unique_ptr<LoaderClient>(const std::string&)>;

// The roles that `options` runs of `job`: modules in the job's order, ranks
// ascending. Errors: FAILED_PRECONDITION (one role of a job whose ranks
// exchange samples, and other processes are not reached),
// INVALID_ARGUMENT (no such role or place, or, without a role, none in any
// module).
absl::StatusOr<std::vector<v1::Role>> RolesOf(const v1::Job& job,
                                              const WorldOptions& options);

// Runs `roles`, which RolesOf answered for `job`, each in a thread with a shim
// of its own, the ranks of a module joined by an in-process communicator.
// Blocks until all have done all steps, or the first has failed and the others
// are stopped. Errors: the first failure, as of TrainerShim. That no server
// takes a timing is none, but that it is not one of this job
// (INVALID_ARGUMENT).
absl::Status RunWorld(const v1::Job& job, const v1::Fingerprint& fingerprint,
                      const std::vector<v1::Role>& roles,
                      const WorldOptions& options,
                      const MakeClient& make_client, const OnBatch& on_batch);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BALLAST_RANK_WORLD_H_
