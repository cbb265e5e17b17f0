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
#include "common/mutex.h"
#include "proto/block_plan.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "server/delivery/block.h"
#include "server/delivery/block_build.h"
#include "server/delivery/block_pool.h"
#include "server/delivery/memory_budget.h"
#include "server/delivery/sample_builder.h"
#include "server/delivery/schedule_cache.h"
#include "server/delivery/stream_progress.h"
#include "server/delivery/worker_pool.h"

namespace ballast {

// What Loader, its streams and its blocks share; each holds it, so they may go
// in any order. One lock guards the books (streams and budget) and is held for
// bookkeeping only, a few times a block: planning, building, callbacks and
// freeing blocks happen outside.
class LoaderCore : public std::enable_shared_from_this<LoaderCore> {
 public:
  struct Settings {
    v1::Delivery delivery = v1::DELIVERY_EXCHANGE;
    BlockGeometry geometry;
    uint64_t memory = 0;
    uint32_t prefetch_steps = 0;
    uint32_t ranks = 1;
  };
  using BlockOr = absl::StatusOr<std::unique_ptr<Block>>;

  // `scheduler` is not owned and is used until Stop.
  LoaderCore(const Settings& settings, const Scheduler* scheduler,
             std::unique_ptr<SampleBuilder> builder,
             std::unique_ptr<WorkerPool> workers);

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
  void Drain();
  // Drains and stops the workers. Afterwards only TryNext, Close and the
  // releases of blocks are called.
  void Stop();

  uint64_t memory_in_use() const;
  uint64_t open_streams() const;

 private:
  // A block that was begun and not taken.
  struct Entry {
    BlockId id;
    uint64_t stream;
    std::shared_ptr<BlockBuild> build;  // null before it starts
    std::optional<BlockOr> result;      // when it is finished
  };
  struct Stream {
    Stream(uint64_t id, const v1::Role& role, const BlockRange& range,
           uint32_t prefetch_steps, MemoryBudget* budget,
           std::function<void()> ready)
        : role(role),
          progress(id, range, prefetch_steps, budget),
          ready(std::move(ready)) {}

    const v1::Role role;
    StreamProgress progress;
    std::function<void()> ready;
    std::optional<PlannedBlock> planned;
    std::deque<std::shared_ptr<Entry>> entries;  // in order
    bool ready_is_owed = false;
    absl::Status end;  // not OK: all that the consumer gets from now on
  };
  // What must wait until the lock is let go of: done when it is destroyed, so
  // it is declared before the lock is taken.
  struct Later {
    std::vector<std::function<void()>> calls;
    std::vector<std::shared_ptr<Entry>> dropped;
    WorkerPool* workers;
    explicit Later(WorkerPool* workers) : workers(workers) {}
    ~Later();
  };

  // Starts all that the stream may do now.
  void Advance(Stream* stream, Later* later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes `end` the stream's last word and drops what it has built.
  void End(Stream* stream, absl::Status end, Later* later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls `ready` if the consumer waits for it.
  void Notify(Stream* stream, Later* later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Stream* Find(uint64_t stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Errands.
  void Plan(uint64_t stream_id, const v1::Role& role, const BlockId& block);
  void Build(std::shared_ptr<Entry> entry, PlannedBlock planned,
             uint64_t distance);

  void OnFinished(const std::weak_ptr<Entry>& entry, BlockOr result);
  void Release(uint64_t stream, uint64_t bytes);

  const Settings settings_;
  const uint64_t max_streams_;
  const std::unique_ptr<SampleBuilder> builder_;
  const std::shared_ptr<BlockPool> pool_;
  ScheduleCache schedules_;
  const std::unique_ptr<WorkerPool> workers_;

  mutable Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_stream_ ABSL_GUARDED_BY(mutex_) = 1;
  MemoryBudget budget_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_LOADER_CORE_H_
