#ifndef BALLAST_SERVER_DELIVERY_LOADER_CORE_H_
#define BALLAST_SERVER_DELIVERY_LOADER_CORE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/aligned_buffer.h"
#include "common/mutex.h"
#include "proto/block/block_plan.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "proto/schedule/delivery_rule.h"
#include "server/delivery/arena.h"
#include "server/delivery/block.h"
#include "server/delivery/block_build.h"
#include "server/delivery/block_ledger.h"
#include "server/delivery/loader_stats.h"
#include "server/delivery/sample_builder.h"
#include "server/delivery/schedule_cache.h"
#include "server/delivery/stream_progress.h"
#include "server/delivery/vision_first.h"
#include "server/delivery/workers.h"

namespace ballast {

// What Loader, its streams and its blocks share; each holds it, so they may go
// in any order. One lock guards the books (streams and ledger) and is held for
// bookkeeping only, a few times a block: planning, building, callbacks and
// freeing memory happen outside.
class LoaderCore : public std::enable_shared_from_this<LoaderCore> {
 public:
  struct Settings {
    // By module: who pulls what.
    std::array<DeliveryRule, v1::Module_ARRAYSIZE> delivery;
    BlockGeometry geometry;
    uint64_t memory = 0;
    uint32_t prefetch_steps = 0;
    uint32_t ranks = 1;
    // Ranks that pull the same blocks: of one data-parallel rank.
    uint32_t peers = 1;
    bool vision_first = false;  // see vision_first.h
  };
  using BlockOr = absl::StatusOr<std::unique_ptr<Block>>;

  // `scheduler` is not owned and is used until Stop.
  LoaderCore(const Settings& settings, const Scheduler* scheduler,
             std::unique_ptr<SampleBuilder> builder,
             std::unique_ptr<Arena> arena, std::unique_ptr<Workers> workers);

  // See Loader and BlockStream. `role` is valid.
  absl::StatusOr<uint64_t> Open(const v1::Role& role, const BlockId& first,
                                uint64_t steps, std::function<void()> ready);
  std::optional<BlockOr> TryNext(uint64_t stream);
  absl::Status StatusOf(uint64_t stream) const;
  void Close(uint64_t stream);
  void GetSchedule(uint64_t step,
                   std::function<void(
                       absl::StatusOr<std::shared_ptr<const v1::StepSchedule>>)>
                       answer);
  void PeekSchedule(
      uint64_t step,
      std::function<
          void(absl::StatusOr<std::shared_ptr<const v1::StepSchedule>>)>
          answer);
  void WatchSteps(std::function<void(uint64_t step)> on_step);
  // To be called every kLook where settings.vision_first.
  void LookForStillVision();
  void Drain();
  // Drains and stops the workers. Afterwards only TryNext, Close and the
  // releases of blocks are called.
  void Stop();

  uint64_t memory_in_use() const;
  uint64_t open_streams() const;
  LoaderStats stats() const;
  const ArenaIdentity* arena() const { return arena_->identity(); }

 private:
  // A block of the ledger. Its memory is the builder's until it is done.
  struct Entry {
    uint64_t number = 0;  // in the ledger
    BlockId id;
    std::optional<uint64_t> offset;  // in the arena, where it lies there
    AlignedBuffer buffer;            // where it does not
    absl::Span<uint8_t> memory;
    std::shared_ptr<BlockBuild> build;  // while it is in work
    bool done = false;
    absl::Status status;      // with done
    uint64_t checksum = 0;    // with done and OK
    uint64_t generation = 0;  // with done, OK and offset
  };
  struct Queued {
    std::shared_ptr<Entry> entry;
    bool lendable;
  };
  struct Stream {
    Stream(uint64_t id, const v1::Role& role, const BlockRange& range,
           uint32_t prefetch_steps, std::function<void()> ready)
        : id(id),
          role(role),
          progress(range, prefetch_steps),
          ready(std::move(ready)) {}

    const uint64_t id;
    const v1::Role role;
    StreamProgress progress;
    std::function<void()> ready;
    std::optional<PlannedBlock> planned;
    std::deque<Queued> queue;  // begun and not taken, in order
    absl::Status plan_error;   // comes after these
    bool waits_for_memory = false;
    bool waits_for_vision = false;
    uint32_t looks_still = 0;  // of vision: VisionLane
    // Of language: vision_begun_ when it last began a block.
    uint64_t vision_begun_then = 0;
    bool ready_is_owed = false;
    absl::Status end;  // not OK: all that the consumer gets from now on
  };
  // What must wait until the lock is let go of: done when it is destroyed, so
  // it is declared before the lock is taken.
  struct Later {
    std::vector<std::function<void()>> calls;
    std::vector<std::shared_ptr<Entry>> forgotten;
    std::vector<std::shared_ptr<BlockBuild>> builds;
    ~Later() {
      for (const std::function<void()>& call : calls) call();
    }
  };

  // Starts all that the stream may do now.
  void Advance(Stream* stream, Later* later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AdvanceWaiting(Later* later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the block that the stream would begin waits for vision's.
  bool WaitsForVision(const Stream& stream) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // By data-parallel rank of vision: its stream that is furthest on.
  using VisionLanes = std::map<uint32_t, VisionLane>;
  VisionLanes LanesOfVision() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static std::optional<BlockId> FirstInWork(const Stream& stream);
  bool AwaitsAny(const Stream& stream, const VisionLanes& lanes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gets memory for the block that the stream has planned. False: not now.
  bool Begin(Stream* stream, const StreamProgress::Decision& next, Later* later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether TryNext has something to say.
  static bool HasNews(const Stream& stream);
  // Makes `end` the stream's last word and drops what it has built.
  void End(Stream* stream, absl::Status end, Later* later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls `ready` if the consumer waits for it.
  void Notify(Stream* stream, Later* later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Stream* Find(uint64_t stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::unique_ptr<Block> MakeHold(const Stream& stream, const Queued& queued);
  // Nobody holds it and it is in work: ends that, unless samples of it have
  // been begun, which whoever comes next for it will want.
  void Abandon(const std::shared_ptr<Entry>& entry, Later* later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnBuilt(Entry* entry, bool ok, Later* later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(uint64_t block, Later* later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Errands.
  void Plan(uint64_t stream_id, const v1::Role& role, const BlockId& block);
  void Build(const std::shared_ptr<Entry>& entry, PlannedBlock planned,
             uint64_t distance);

  // Finds memory for the block, where the ledger says or outside the arena.
  absl::Status TakeMemory(Entry* entry, uint64_t bytes,
                          std::optional<uint64_t> place);
  void OnFinished(const std::weak_ptr<Entry>& weak,
                  absl::StatusOr<uint64_t> checksum);
  // A stream has got a block of `step`.
  void NoteStep(uint64_t step, Later* later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Lend(uint64_t stream, uint64_t block);
  void Release(uint64_t stream, uint64_t block);

  const Settings settings_;
  const uint64_t max_streams_;
  const std::unique_ptr<SampleBuilder> builder_;
  const std::unique_ptr<Arena> arena_;
  ScheduleCache schedules_;

  mutable Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool arena_is_full_ ABSL_GUARDED_BY(mutex_) = false;  // that was logged
  std::function<void(uint64_t)> on_step_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> current_step_ ABSL_GUARDED_BY(mutex_);
  uint64_t blocks_built_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t blocks_failed_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t blocks_reused_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t vision_begun_ ABSL_GUARDED_BY(mutex_) = 0;  // blocks
  uint64_t next_stream_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t next_generation_ ABSL_GUARDED_BY(mutex_);
  BlockLedger ledger_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<Entry>> blocks_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);

  const std::unique_ptr<Workers> workers_;  // last: they use all the others
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_LOADER_CORE_H_
