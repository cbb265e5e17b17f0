#ifndef BALLAST_SERVER_DELIVERY_LOADER_H_
#define BALLAST_SERVER_DELIVERY_LOADER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/block/block_plan.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/module.h"
#include "server/delivery/arena.h"
#include "server/delivery/block.h"
#include "server/delivery/block_ledger.h"
#include "server/delivery/block_stream.h"
#include "server/delivery/encoder_gate.h"
#include "server/delivery/schedule_cache.h"
#include "server/delivery/stall_watchdog.h"
#include "server/delivery/worker_pool.h"
#include "server/schedule/scheduler.h"

namespace ballast {

// Totals of a loader since its start, and its present state.
struct LoaderStats {
  uint64_t memory_in_use = 0;  // bytes of blocks that are held or being built
  uint64_t memory_idle = 0;    // bytes of built blocks that nobody holds
  uint64_t streams = 0;
  uint64_t streams_short_of_memory = 0;    // next block waits for memory
  uint64_t streams_awaiting_encoders = 0;  // held back by EncoderGate
  uint64_t blocks_in_work = 0;
  uint64_t blocks_ready = 0;  // built, and not taken by a stream yet
  uint64_t blocks_built = 0;
  uint64_t blocks_failed = 0;  // a sample failed, or no longer wanted
  uint64_t blocks_reused = 0;  // a stream found it built or being built
  uint64_t schedules_found = 0;
  uint64_t schedules_computed = 0;
  uint64_t tasks_waiting = 0;
  uint64_t samples_waiting = 0;
  uint32_t workers = 0;
  uint32_t workers_busy = 0;
  // The highest step of a block that any stream has taken since the server last
  // had no streams.
  std::optional<uint64_t> current_step;
};

// Builds the blocks of a job, of all its splits. A sample is read only if a
// stream of its role wants it, and once for all streams that do: they share the
// block (block_ledger.h). All streams share `serve.threads` workers, whose unit
// of work is one sample, and `serve.memory` (block_ledger.h states its bound),
// which is in the place that `serve.arena` names. Each stream is prepared up to
// `serve.prefetch_steps` steps ahead of the block that its client takes next.
// Thread-safe.
//
// One lock guards the bookkeeping (streams and ledger); a block takes it a few
// times.
// Planning, building, callbacks and freeing memory happen outside it.
class Loader : public std::enable_shared_from_this<Loader> {
 public:
  struct Settings {
    // For each module: which rank pulls which samples.
    std::array<DeliveryRule, v1::Module_ARRAYSIZE> delivery;
    BlockGeometry geometry;
    uint64_t memory = 0;  // bytes
    uint32_t prefetch_steps = 0;
    uint32_t ranks = 1;  // of each split
    uint32_t peers = 1;  // ranks of one data-parallel rank: same blocks
    bool encoders_first = false;  // encoder_gate.h
  };

  // `config` is a loaded one. `ranks` is the number of ranks that this server
  // serves, over all modules, of each split of the job. `scheduler` is the
  // scheduler of train. `active` lists the schedules that are being computed;
  // the steps of train pass `gate`; both may be null. `scheduler`, `clock`,
  // `active` and `gate` are not owned and outlive the loader.
  //
  // The loader stops when the last copy of the returned pointer is gone: every
  // stream ends with UNAVAILABLE, and samples that are being built are waited
  // for. Streams and blocks keep alive what they need beyond that. Errors:
  // RESOURCE_EXHAUSTED (threads); as MakeArena and GetRule.
  static absl::StatusOr<std::shared_ptr<Loader>> Create(
      const v1::Config& config, uint32_t ranks, const Scheduler* scheduler,
      std::unique_ptr<SampleBuilder> builder, Clock* clock = Clock::Real(),
      ActiveSamples* active = nullptr, StepGate* gate = nullptr);
  // Creates a loader over given memory and workers. If settings.encoders_first,
  // the caller must call LookForPausedEncoders every
  // EncoderGate::kLookInterval.
  static std::shared_ptr<Loader> CreateOver(
      const Settings& settings, const Scheduler* scheduler,
      std::unique_ptr<SampleBuilder> builder, std::unique_ptr<Arena> arena,
      std::unique_ptr<Workers> workers, ActiveSamples* active = nullptr,
      StepGate* gate = nullptr);

  // Opens the stream of `role` at (step, micro_batch). It ends after `steps`
  // steps (0: never), or where the data end. Building begins at once. `ready`
  // is called from any thread with no lock held, see BlockStream::TryNext; it
  // must not block. Whether the step has this micro-batch is known once its
  // schedule is, so TryNext reports that. With `share`, the stream has the
  // blocks that it owns alone.
  //
  // A role may have a stream for each peer and three more, 8 at least. One that
  // is opened beyond that ends the idle stream of the role whose consumer has
  // taken no block for the longest time, with ABORTED; a stream is idle while
  // its consumer does not wait for a block. All roles together may have a
  // stream for each peer and three more for each rank of each split, 64 at
  // least; beyond that, the role with the most streams gives way to one that
  // has fewer.
  //
  // Errors: INVALID_ARGUMENT (no such module, rank or split), OUT_OF_RANGE (the
  // data end before the step), UNAVAILABLE (the loader drains),
  // RESOURCE_EXHAUSTED (too many streams, and none gives way),
  // FAILED_PRECONDITION (some of the module's ranks with an open stream of the
  // split request direct delivery and some do not).
  absl::StatusOr<std::unique_ptr<BlockStream>> OpenStream(
      const v1::Role& role, uint64_t step, uint32_t micro_batch, uint64_t steps,
      std::function<void()> ready, std::optional<BlockShare> share = {});

  // FAILED_PRECONDITION, as from OpenStream, if another rank of the module with
  // an open stream does not request the same delivery as `role`.
  absl::Status CheckAskAlike(const v1::Role& role) const;
  // The roles of open streams that ask for Role.delivery DIRECT where the job
  // moves samples, at most 16.
  std::vector<v1::Role> RolesAskingDirect() const;

  // Makes a worker get the schedule of `step` of `split` and pass it to
  // `answer`. The loader must live until then. Errors: as CheckSplit and the
  // scheduler.
  using ScheduleAnswer = std::function<void(
      absl::StatusOr<std::shared_ptr<const v1::StepSchedule>>)>;
  void GetSchedule(uint64_t step, ScheduleAnswer answer,
                   v1::Split split = v1::SPLIT_TRAIN);

  // Like GetSchedule, for watchers and others that look at many steps: samples
  // come before it (worker_pool.h), and schedules that streams need stay in the
  // cache.
  void PeekSchedule(uint64_t step, ScheduleAnswer answer,
                    v1::Split split = v1::SPLIT_TRAIN);

  // From now on a worker calls `on_step` with each new
  // LoaderStats.current_step. Call at most once.
  void WatchSteps(std::function<void(uint64_t step)> on_step);

  // Updates how long each stream of an encoder has been idle
  // (EncoderGate::Look).
  void LookForPausedEncoders();

  // Refuses new streams from now on and ends the open ones with UNAVAILABLE at
  // the next TryNext. Final. Does not wait.
  void Drain();
  // Whether Drain has been called.
  bool draining() const;

  // The shared memory that holds the blocks; null without shared memory.
  const ArenaIdentity* arena() const { return arena_->identity(); }

  // Bytes of blocks that are held or being built; number of open streams.
  uint64_t memory_in_use() const;
  uint64_t open_streams() const;
  // Threads that build blocks.
  uint32_t workers() const { return workers_->load().threads; }
  LoaderStats stats() const;

 private:
  class Stream;  // the BlockStream that OpenStream returns
  using BlockOr = absl::StatusOr<std::unique_ptr<Block>>;

  // A block of a step whose schedule is needed.
  struct PlanRequest {
    uint64_t stream;  // its number
    v1::Role role;
    uint32_t micro_batch;
  };

  // Work deferred until the lock is released. The destructor does it, so
  // declare it before taking the lock.
  struct Deferred {
    std::vector<std::function<void()>> calls;
    std::vector<std::shared_ptr<LoaderBlock>> forgotten;
    std::vector<std::shared_ptr<BlockBuild>> builds;
    ~Deferred() {
      for (const std::function<void()>& call : calls) call();
    }
  };

  Loader(const Settings& settings, const Scheduler* scheduler,
         std::unique_ptr<SampleBuilder> builder, std::unique_ptr<Arena> arena,
         std::unique_ptr<Workers> workers, ActiveSamples* active,
         StepGate* gate);

  // Drains and stops the workers. Afterwards only TryNext, Close and the
  // releases of blocks are called.
  void Stop();

  // The calls of Stream and Block, by the stream's id.
  std::optional<BlockOr> TryNext(uint64_t stream);
  absl::Status GetStatus(uint64_t stream) const;
  void Close(uint64_t stream);
  void Lend(uint64_t stream, uint64_t block);
  void Release(uint64_t stream, uint64_t block);
  // `block` is built, and the stream holds it.
  uint64_t GetChecksum(uint64_t stream, LoaderBlock* block);

  // Returns whether the role requests `direct` although balance.delivery is
  // another mode that moves samples.
  bool AsksDirect(const v1::Role& role) const;
  absl::Status CheckAskAlikeLocked(const v1::Role& role) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Ends another stream if a new stream of `role` needs its place. Errors:
  // RESOURCE_EXHAUSTED.
  absl::Status MakeRoomFor(const v1::Role& role, Deferred* deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins everything that the stream may begin now.
  void Advance(LoaderStream* stream, Deferred* deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls Advance for every stream that waits for memory or for encoders.
  void AdvanceWaiting(Deferred* deferred) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Acquires memory for the block that the stream has planned. Returns false if
  // that is not possible now.
  bool Begin(LoaderStream* stream, const StreamProgress::Decision& next,
             Deferred* deferred) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether TryNext has something to return.
  static bool HasNews(const LoaderStream& stream);
  // Makes `end` the stream's final result and drops what it has built.
  void End(LoaderStream* stream, absl::Status end, Deferred* deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls `ready` if the consumer waits for it.
  void Notify(LoaderStream* stream, Deferred* deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  LoaderStream* Find(uint64_t stream) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::unique_ptr<Block> MakeHold(const LoaderStream& stream,
                                  const std::shared_ptr<LoaderBlock>& block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the stream's hold on a block of its queue.
  void LetGo(const LoaderStream& stream,
             const std::shared_ptr<LoaderBlock>& block, Deferred* deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes a role above its share give back a block, if the next block of
  // `wants` is within its share. Returns false if it is not, or there is none
  // to give.
  bool TakeBack(const LoaderStream& wants, const StreamProgress::Decision& next,
                Deferred* deferred) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the build of a block that no stream holds, unless samples of it have
  // been begun: then the next stream that requests it will need them.
  void Abandon(const std::shared_ptr<LoaderBlock>& block, Deferred* deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnBuilt(LoaderBlock* block, bool ok, Deferred* deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(uint64_t number, Deferred* deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Records that a stream of `split` has got a block of `step`.
  void NoteStep(v1::Split split, uint64_t step, Deferred* deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Makes a worker plan the stream's block together with the other requested
  // blocks of its step: streams at ever other steps would otherwise displace
  // each other's schedules from the cache, which then would be computed once
  // for each stream.
  void AddPlanRequest(const LoaderStream& stream, const BlockId& block,
                      Deferred* deferred) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Empty if no stream waits any more; the next request then adds a task.
  std::vector<PlanRequest> TakePlanRequests(v1::Split split, uint64_t step);
  void OnPlanned(uint64_t stream_id, absl::StatusOr<PlannedBlock> planned);

  // The workers' tasks.
  void PlanStep(v1::Split split, uint64_t step);
  void Build(const std::shared_ptr<LoaderBlock>& block, PlannedBlock planned,
             uint64_t distance);

  // Finds memory for the block, at the ledger's place or outside the arena.
  absl::Status TakeMemory(LoaderBlock* block, uint64_t bytes,
                          std::optional<uint64_t> place);
  void OnFinished(const std::weak_ptr<LoaderBlock>& weak,
                  absl::StatusOr<std::optional<uint64_t>> checksum);

  // State of one split of the job.
  struct SplitPart {
    SplitPart(const Scheduler* scheduler, size_t cached, ActiveSamples* active,
              StepGate* gate)
        : job(scheduler->job()), schedules(scheduler, cached, active, gate) {}
    const v1::Job job;
    ScheduleCache schedules;
  };
  using SplitParts =
      std::array<std::unique_ptr<SplitPart>, v1::Split_ARRAYSIZE>;
  static SplitParts GetParts(const Settings& settings,
                             const Scheduler* scheduler, ActiveSamples* active,
                             StepGate* gate);

  // The part of `split`. Errors: as CheckSplit.
  absl::StatusOr<SplitPart*> GetPart(v1::Split split) const;
  EncoderGate& GetGate(const LoaderStream& stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return gates_[stream.role.split()];
  }
  // Whether a stream of train is open.
  bool Trains() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Settings settings_;
  const SplitParts splits_;  // null: the job has no such split
  const uint64_t roles_;     // that may have streams: ranks of all splits
  const uint64_t max_streams_of_role_;
  const uint64_t max_streams_;
  const std::unique_ptr<SampleBuilder> builder_;
  const std::unique_ptr<Arena> arena_;

  mutable Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool full_arena_logged_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void(uint64_t)> on_step_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> current_step_ ABSL_GUARDED_BY(mutex_);
  uint64_t blocks_built_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t blocks_failed_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t blocks_reused_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_stream_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;  // LoaderStream.last_taken
  // Roles of which the log has said that they open too many streams.
  std::set<RoleKey> told_of_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_generation_ ABSL_GUARDED_BY(mutex_);
  BlockLedger ledger_ ABSL_GUARDED_BY(mutex_);
  // One for each split: the blocks of different splits share no sample.
  std::vector<EncoderGate> gates_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<LoaderBlock>> blocks_
      ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::unique_ptr<LoaderStream>> streams_
      ABSL_GUARDED_BY(mutex_);
  // Each step has one task, PlanStep, which waits or runs.
  std::map<std::pair<v1::Split, uint64_t>, std::vector<PlanRequest>> to_plan_
      ABSL_GUARDED_BY(mutex_);

  const std::unique_ptr<Workers> workers_;  // their threads use all the above
  std::unique_ptr<Ticker> ticker_;          // null unless encoders_first
};

// OK, or INVALID_ARGUMENT naming the module, rank or split that the job lacks,
// or the delivery that the rank may not request.
absl::Status CheckRole(const v1::Job& job, const v1::Role& role);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_LOADER_H_
