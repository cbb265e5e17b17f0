#ifndef BALLAST_TRAINER_SHIM_ROLE_SOURCE_H_
#define BALLAST_TRAINER_SHIM_ROLE_SOURCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/batch_stream.h"
#include "client/failover.h"
#include "client/loader_client.h"
#include "client/schedule_source.h"
#include "client/server_finder.h"
#include "common/channel_security.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/batch_info.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/communicator.h"

namespace ballast {

// Time spent in each phase between a micro-batch's block and its packed batch
// (StepTiming in proto/job.proto). Absent: there is no such phase, or its
// time is unknown.
struct BatchTimes {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  std::optional<absl::Duration> copy;  // from host to device
  // Between ranks; includes other ranks' delays.
  std::optional<absl::Duration> exchange;
  // For images that passed through encoded: includes resizing and the wait for
  // the engines.
  std::optional<absl::Duration> decode;
  std::optional<absl::Duration> pack;
};

// The number of micro-batches of any step: a trainer's pipeline schedule needs
// it before the step's first batch. Numbers of schedules that the rank has
// fetched for its batches are known; the servers are asked for others. A rank
// that asks for the step that it trains on next has reached that step; a
// question about a later one is only a question. All calls may be made from any
// thread.
class MicroBatchCounts {
 public:
  // Numbers that are kept.
  static constexpr size_t kKnownSteps = 64;

  // As ScheduleSource.
  MicroBatchCounts(absl::Span<LoaderClient* const> servers,
                   ScheduleSource::Options options)
      : schedules_(servers, std::move(options)) {}

  // Keeps the number of a schedule's micro-batches, for the last kKnownSteps
  // steps. Never waits for a Get.
  void Note(const v1::StepSchedule& schedule);

  // Blocks only for a step that is not known. Errors: as ScheduleSource::Get;
  // DATA_LOSS (a schedule without micro-batches).
  absl::StatusOr<uint32_t> Get(uint64_t step, LoaderClient::Use use);

  // As ScheduleSource::Cancel.
  void Cancel() { schedules_.Cancel(); }

 private:
  // 0: not known.
  uint32_t Known(uint64_t step) const;

  Mutex asking_;              // held while a server is asked
  ScheduleSource schedules_;  // Get: only under asking_
  mutable Mutex mutex_;
  std::map<uint64_t, uint32_t> counts_ ABSL_GUARDED_BY(mutex_);  // by step
};

// The job's servers, and how they and this rank authenticate each other.
struct ServerOptions {
  // `unix:/path` or `host:port` of at least one server, in order of preference.
  // The rank attaches to all that answer, and they must have one fingerprint.
  // Blocks come from the first server, and from the next when it dies, hangs,
  // drains or is too slow.
  std::vector<std::string> addresses;
  // Messages name the fields as options of the command lines.
  SecurityFiles security;
  // Number of connections, 1 to 8, that carry blocks outside shared memory;
  // other numbers are clamped to this range. docs/flow_control.md says how to
  // choose.
  uint32_t streams = 1;
};

// The source of a shim's blocks and schedules: one role of one job, in the
// role's split, over all of its servers. Next must be called from one thread;
// Cancel may be called from any.
class RoleSource {
 public:
  static constexpr uint64_t kOnePass = std::numeric_limits<uint64_t>::max();

  struct Options {
    v1::Role role;
    TrainerPlace place;
    // Schedules come without blocks: for a rank that receives its batches from
    // a tensor peer. The shim sets this. A rank that receives no tensor
    // (JobShape.fields) gets no blocks either way.
    bool without_blocks = false;
    // First step. A checkpoint is (next step, fingerprint()): the run resumes
    // at exactly the next position, also with another dp size, micro-batch,
    // delivery, balance or packing, or other servers, as long as the data are
    // the same.
    uint64_t start_step = 0;
    // The checkpoint's fingerprint: its data must be the servers'
    // (CheckSameData). Empty: there is no checkpoint.
    v1::Fingerprint checkpoint;
    // The checkpoint's changes of the running job.
    std::vector<v1::Revision> checkpoint_revisions;
    // 0: until the data end. kOnePass: until every sample of valid or test has
    // occurred (Job.one_pass).
    uint64_t steps = 0;
    // The job's fingerprint must be this one in every part. May be empty.
    v1::Fingerprint fingerprint;
    // Bytes of blocks that may be held or in flight. One block is always
    // allowed, however large.
    uint64_t max_bytes = uint64_t{256} << 20;
    // Servers that make the blocks at once, each its share
    // (client/spread_stream.h): at most this many of those at `addresses`, and
    // of those that names there resolve to while the rank runs. 0: blocks come
    // from one server, and the others are for its failure.
    uint32_t spread = 0;
    ResolveHost resolve = ResolveBySystem;
    // Its seed is mixed with the role, so that ranks differ.
    FailoverOptions failover;
    Clock* clock = Clock::Real();  // outlives this
  };

  // Attaches and begins to fetch. Blocks until all servers have answered or
  // failed to. Errors: as AttachAll, CheckSameData, GetShape and
  // BatchStream::Create.
  static absl::StatusOr<std::unique_ptr<RoleSource>> Create(
      std::vector<std::unique_ptr<LoaderClient>> clients, Options options);

  // Returns the next block (null without blocks) and its step. `step` is valid
  // until the next call; its schedule may be kept. Errors: as BatchStream::Next
  // and ScheduleSource::Get; OUT_OF_RANGE only at the end of the steps or of
  // the data, saying which.
  struct Block {
    std::unique_ptr<FetchedBlock> block;
    const StepInfo* step = nullptr;
    uint32_t micro_batch = 0;
  };
  absl::StatusOr<Block> Next();
  // Takes back the block that Next returned last, which was overwritten while
  // it was read: Next returns it anew. As BatchStream::FetchAgain.
  absl::Status FetchAgain(std::unique_ptr<FetchedBlock> block) {
    return stream_->FetchAgain(std::move(block));
  }

  // As RankShim::NumMicroBatches. From any thread.
  absl::StatusOr<uint32_t> NumMicroBatches(uint64_t step);

  // Ends a blocked Next or NumMicroBatches, and every later one, with
  // CANCELLED.
  void Cancel();

  // Keeps how long a micro-batch's packed batch took to make, for ReportTiming,
  // in addition to the time that Next waited for its block. Kept for the last
  // kKnownTimes micro-batches for which Next returned a block. From any thread.
  static constexpr size_t kKnownTimes = 64;
  void NoteTimes(const BatchTimes& times);

  // As RankShim::ReportTiming. Adds the known times of the micro-batch. From
  // any thread.
  absl::Status ReportTiming(uint64_t step, uint32_t micro_batch,
                            double milliseconds);

  // The changes of the running job that begin before `next_step`, as far as the
  // rank has been told: for a checkpoint. From any thread.
  std::vector<v1::Revision> RevisionsBefore(uint64_t next_step) const {
    return chain_->Before(next_step);
  }

  const v1::Role& role() const { return role_; }
  const v1::AttachResponse& attached() const { return attached_; }
  const JobShape& shape() const { return shape_; }
  bool has_blocks() const { return !without_blocks_; }

 private:
  RoleSource(std::vector<std::unique_ptr<LoaderClient>> clients,
             const Options& options)
      : role_(options.role),
        clock_(options.clock),
        clients_(std::move(clients)) {}
  absl::Status Open(const Options& options);
  absl::StatusOr<v1::AttachResponse> Attach(
      const Options& options, absl::Span<LoaderClient* const> servers);
  absl::StatusOr<std::unique_ptr<BatchStream>> OpenStream(
      const Options& options, const BatchStream::Options& stream);
  absl::StatusOr<Block> NextWithoutBlock();
  // The step of a schedule, copied once a step.
  const StepInfo* GetStep(const v1::StepSchedule& schedule);

  struct KnownTimes {
    absl::Duration wait;
    BatchTimes making;
  };

  const v1::Role role_;
  Clock* const clock_;
  const std::vector<std::unique_ptr<LoaderClient>> clients_;
  v1::AttachResponse attached_;
  std::shared_ptr<RevisionChain> chain_;
  JobShape shape_;
  // Set if the data end before the requested steps; OK: the stream ends at the
  // last requested step.
  absl::Status data_end_;
  std::unique_ptr<TimingReporter> timings_;
  std::unique_ptr<ServerFinder> finder_;  // null without spread
  std::unique_ptr<ScheduleSource> schedules_;
  std::unique_ptr<MicroBatchCounts> counts_;
  StepInfo step_;  // of the last block
  // Declared after everything its thread uses. Null without blocks, and if
  // there are no data for any step.
  std::unique_ptr<BatchStream> stream_;
  // Without blocks only: the next micro-batch, and the number of steps left.
  bool without_blocks_ = false;
  uint64_t next_step_ = 0;
  uint32_t next_micro_batch_ = 0;
  std::optional<uint64_t> steps_left_;  // empty: no end
  // The first step after the requested steps, and the error that says so.
  uint64_t end_step_ = std::numeric_limits<uint64_t>::max();
  // The step after the last block's: the rank trains on none beyond it yet.
  std::atomic<uint64_t> due_step_{0};
  absl::Status end_of_steps_;
  std::atomic<bool> cancelled_{false};
  Mutex mutex_;
  // (step, micro-batch)
  std::map<std::pair<uint64_t, uint32_t>, KnownTimes> times_
      ABSL_GUARDED_BY(mutex_);
};

// A client of each server. Errors: as LoadChannelSecurity.
absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> GetClients(
    const ServerOptions& servers);

// OK if `communicator`, which may be null, fits a role of `shape`. Errors:
// INVALID_ARGUMENT with its rank and size and the rank and size wanted.
absl::Status CheckCommunicator(const JobShape& shape, const v1::Role& role,
                               const Communicator* communicator);

// The same check for the communicator of the rank's tensor peers, which may
// always be null.
absl::Status CheckTensorCommunicator(const JobShape& shape,
                                     const Communicator* communicator);

// A micro-batch of a step.
struct BatchPlace {
  uint64_t step = 0;
  uint64_t micro_batch = 0;
};

// DATA_LOSS: tensor rank 0 sent another batch than the one wanted.
absl::Status ForeignBatch(const BatchPlace& sent, const BatchPlace& wanted);

// Prefixes `status` with the role's name. OUT_OF_RANGE, which is reserved for
// the end of the steps, becomes INTERNAL.
absl::Status NameRole(const absl::Status& status, const v1::Role& role);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_ROLE_SOURCE_H_
