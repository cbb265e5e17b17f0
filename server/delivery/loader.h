#ifndef BALLAST_SERVER_DELIVERY_LOADER_H_
#define BALLAST_SERVER_DELIVERY_LOADER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "server/delivery/arena.h"
#include "server/delivery/block_stream.h"
#include "server/delivery/loader_stats.h"
#include "server/delivery/sample_builder.h"
#include "server/schedule/scheduler.h"

namespace ballast {

// Makes the blocks of a job. A sample is read only when a stream of its role
// wants it, and once for all streams that do: they share the block
// (block_ledger.h). All streams share `serve.threads` workers, whose unit of
// work is one sample, and `serve.memory` (block_ledger.h has its bound), which
// lies where `serve.arena` says; each is prepared up to `serve.prefetch_steps`
// steps ahead of what it has handed out. Thread-safe.
class Loader {
 public:
  // `config` is a loaded one; `ranks` is how many ranks this server serves,
  // over all modules: that many shares are made of the memory. `scheduler` is
  // not owned and must outlive the loader, as must `clock`. Errors:
  // RESOURCE_EXHAUSTED (threads), those of MakeArena and RuleOf.
  static absl::StatusOr<std::unique_ptr<Loader>> Create(
      const v1::Config& config, uint32_t ranks, const Scheduler* scheduler,
      std::unique_ptr<SampleBuilder> builder, Clock* clock = Clock::Real());

  // Ends every stream with UNAVAILABLE and waits for the samples in work.
  virtual ~Loader() = default;

  // Opens the stream of `role` at (step, micro_batch), to end after `steps`
  // steps (0: never), or where the data end. Building begins at once. `ready`
  // is called from any thread with no lock held, see BlockStream::TryNext; it
  // must not block. Whether the step has such a micro-batch is known with its
  // schedule, so that is TryNext's to say. Errors: INVALID_ARGUMENT (no such
  // module or rank), OUT_OF_RANGE (the data end before the step), UNAVAILABLE
  // (the loader drains), RESOURCE_EXHAUSTED (more streams than the rank's peers
  // and three a rank, and at least 64).
  virtual absl::StatusOr<std::unique_ptr<BlockStream>> OpenStream(
      const v1::Role& role, uint64_t step, uint32_t micro_batch, uint64_t steps,
      std::function<void()> ready) = 0;

  // Has a worker get the schedule of `step` and hand it to `answer`. The loader
  // must live until then. Errors: the scheduler's.
  using ScheduleAnswer = std::function<void(
      absl::StatusOr<std::shared_ptr<const v1::StepSchedule>>)>;
  virtual void GetSchedule(uint64_t step, ScheduleAnswer answer) = 0;

  // The same for who looks at many steps: the schedules that the streams need
  // are not given up for it.
  virtual void PeekSchedule(uint64_t step, ScheduleAnswer answer) = 0;

  // `on_step` is called by a worker with each LoaderStats.current_step, which
  // counts from now on. To be called at most once.
  virtual void WatchSteps(std::function<void(uint64_t step)> on_step) = 0;

  // No stream opens any more, and the open ones end with UNAVAILABLE at the
  // next TryNext. For ever. Does not wait.
  virtual void Drain() = 0;

  // The shared memory that blocks lie in; null where there is none.
  virtual const ArenaIdentity* arena() const = 0;

  // Bytes of blocks that are held or being built, and streams that are open.
  virtual uint64_t memory_in_use() const = 0;
  virtual uint64_t open_streams() const = 0;
  virtual LoaderStats stats() const = 0;
};

// OK, or INVALID_ARGUMENT naming the module or rank that the job lacks.
absl::Status CheckRole(const v1::Job& job, const v1::Role& role);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_LOADER_H_
