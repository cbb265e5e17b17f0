#ifndef BALLAST_TRAINER_SHIM_BALLAST_RANK_WORLD_H_
#define BALLAST_TRAINER_SHIM_BALLAST_RANK_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/failover.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/batch_info.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/jpeg_engine.h"

namespace ballast {

// Stops every rank of a process once one has failed, and keeps the first
// failure. Thread-safe.
class Failure {
 public:
  explicit Failure(size_t ranks) : cancels_(ranks) {}

  // From now until Leave, a failure calls `cancel`; if a rank has failed
  // before, calls it at once.
  void Enter(size_t rank, std::function<void()> cancel) {
    MutexLock lock(&mutex_);
    if (!first_.ok()) cancel();
    cancels_[rank] = std::move(cancel);
  }
  void Leave(size_t rank) {
    MutexLock lock(&mutex_);
    cancels_[rank] = nullptr;
  }

  void Set(const absl::Status& status) {
    MutexLock lock(&mutex_);
    if (!first_.ok()) return;
    first_ = status;
    for (const auto& cancel : cancels_) {
      if (cancel) cancel();
    }
  }

  absl::Status first() {
    MutexLock lock(&mutex_);
    return first_;
  }

 private:
  Mutex mutex_;
  std::vector<std::function<void()>> cancels_ ABSL_GUARDED_BY(mutex_);
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
};

// Counts timings that no server took. They are only advice: losing one does not
// end a run. Thread-safe.
class LostReports {
 public:
  void Add(const absl::Status& why) {
    MutexLock lock(&mutex_);
    ++count_;
    last_ = why;
  }

  uint64_t count() const {
    MutexLock lock(&mutex_);
    return count_;
  }

  // A line for people; empty if none was lost.
  std::string Warning() const {
    MutexLock lock(&mutex_);
    if (count_ == 0) return "";
    return absl::StrCat(count_, " timings were taken by no server; the last: ",
                        last_.message());
  }

 private:
  mutable Mutex mutex_;
  uint64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status last_ ABSL_GUARDED_BY(mutex_);
};

// The ranks that this process runs, all at one place of their modules: one
// rank, or every data-parallel rank of every module that has this place.
struct WorldOptions {
  std::vector<std::string> servers;
  std::optional<v1::Role> role;  // empty: all
  TrainerPlace place;
  uint64_t start_step = 0;
  uint64_t steps = 1;
  v1::Fingerprint checkpoint;               // as TrainerShim's
  uint64_t max_bytes = uint64_t{64} << 20;  // of blocks, per rank
  uint32_t spread = 0;                      // as RoleSource's
  FailoverOptions failover;
  // Reports the time of packing each micro-batch, which is the only work of a
  // rank here. The timings have the right form to try `ballastctl fit-cost`
  // with.
  bool report_timings = false;
  // Counts the timings that were lost. Not owned; may be null.
  LostReports* lost_reports = nullptr;
  // Whether the batches handed to OnBatch have tensors. With the host backend
  // they always do; with CUDA this copies them from the device, which takes
  // longer than everything else.
  bool tensors = true;
  // For a single role: names this start of the job, so that its ranks never
  // meet ranks of another start; may be empty. And the network interface or
  // address at which it exchanges (ExchangeAddress); empty: chosen by the
  // servers.
  std::string run;
  std::string interface;
  Clock* clock = Clock::Real();
};

// A batch that a rank has just received. Borrowed for the call.
struct RankBatch {
  uint32_t rank = 0;  // number among the roles of this process
  const PackedBatch* batch = nullptr;
  const v1::StepSchedule* schedule = nullptr;  // of the batch's step
  absl::Duration next;                         // time of Next
  JpegEngineCounts decoded = {};               // RankShim::decoded
};
// Called by every rank's thread, so it must be thread-safe.
using OnBatch = std::function<void(const RankBatch&)>;

// Creates a client of the server at an address, as LoaderClient::Create.
using MakeClient =
    std::function<std::unique_ptr<LoaderClient>(const std::string&)>;
// One client of each server, in order.
std::vector<std::unique_ptr<LoaderClient>> MakeClients(
    const std::vector<std::string>& servers, const MakeClient& make_client);

// The roles of `job` that `options` selects: modules in the job's order, ranks
// ascending. Errors: INVALID_ARGUMENT (no such role or place; without a role,
// no module has the place).
absl::StatusOr<std::vector<v1::Role>> GetRoles(const v1::Job& job,
                                               const WorldOptions& options);

// Runs `roles`, as GetRoles returned them for `job`, each in a thread with its
// own shim. An in-process communicator connects the ranks of a module; a single
// role that exchanges samples meets the processes of the other ranks over Gloo,
// through the MeetingServer. Blocks until all have done all steps, or the first
// has failed and the others are stopped. Errors: the first failure, as from
// TrainerShim and MeetGlooCommunicator. A timing that no server takes is not an
// error, unless a server rejects it because it does not belong to this job
// (INVALID_ARGUMENT).
absl::Status RunWorld(const v1::Job& job, const v1::Fingerprint& fingerprint,
                      const std::vector<v1::Role>& roles,
                      const WorldOptions& options,
                      const MakeClient& make_client, const OnBatch& on_batch);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BALLAST_RANK_WORLD_H_
