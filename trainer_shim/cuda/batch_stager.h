#ifndef BALLAST_TRAINER_SHIM_CUDA_BATCH_STAGER_H_
#define BALLAST_TRAINER_SHIM_CUDA_BATCH_STAGER_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/batch_fetcher.h"
#include "common/mutex.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/device_batch.h"
#include "trainer_shim/cuda/staging_plan.h"
#include "trainer_shim/exchange_plan.h"
#include "trainer_shim/region_pins.h"
#include "trainer_shim/role_source.h"
#include "trainer_shim/staging_queue.h"

namespace ballast {

// Measures the device's time for each phase of a micro-batch with timed events,
// which are created once and reused for every micro-batch. Nothing here waits
// for the device or allocates; recording costs the host a microsecond or two
// per phase.
//
// By the device's clock, a phase lasts from the end of the phase before until
// its own last work is done, including the stream's waits in between. So the
// exchange includes the wait for late peers, decoding includes the wait for the
// JPEG engines, and every phase includes the time during which other streams
// use the device.
//
// Begin and End must be called from one thread at a time. Take may be called
// from any thread whose current device is this one or not set.
class StagingTimer {
 public:
  enum Phase { kCopy, kExchange, kDecode, kPack, kPhases };

  // Creates one for the current device. Errors: as CudaStatus.
  static absl::StatusOr<std::unique_ptr<StagingTimer>> Create();
  StagingTimer(const StagingTimer&) = delete;
  StagingTimer& operator=(const StagingTimer&) = delete;

  // Call before this micro-batch's work is enqueued on `stream`. Drops earlier
  // times that were not taken. Errors: as CudaStatus.
  absl::Status Begin(uint64_t step, uint32_t micro_batch, cudaStream_t stream);
  // Ends `phase`, which is the work enqueued on Begin's `stream` since the
  // phase before. Phases are ended in their order; kPack ends the micro-batch.
  // A phase that is not ended is absent from the times. Errors: as CudaStatus.
  absl::Status End(Phase phase, cudaStream_t stream);

  // Returns the times once, after the device has finished the micro-batch;
  // empty before and after that, and if the device reports an error, which the
  // calls that enqueue work will return.
  std::optional<BatchTimes> Take();

 private:
  StagingTimer() = default;

  // Used by the thread that enqueues work while `ended_` is false, and with
  // `mutex_` held while it is true. `mutex_` is not held while recording:
  // recording waits if the device's queue is full, and so may wait for peers,
  // which other threads must not.
  Event begun_;
  Event ends_[kPhases];
  bool has_[kPhases] = {};

  Mutex mutex_;
  BatchTimes batch_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // all recorded, none taken
};

// One micro-batch, planned, checked and in pinned memory: everything that the
// host does for it before enqueueing device work.
struct StagedBatch final : StagedBlock {
  absl::StatusOr<bool> HasBeenRead() const override { return read.Done(); }
  absl::Status AwaitRead() const override { return read.Wait(); }

  ExchangePlan exchange;
  BatchLayout layout;
  StagingPlan plan;
  // Everything that is known about the batch without the device; its pointers
  // are null. Moved to the pool's entry at the launch.
  DeviceBatch batch;
  // The block, in pinned memory: where the server wrote it (StagedBlock::block
  // then keeps it), or in `host`. Null if the rank receives no tensor, or
  // receives its tensors from a tensor peer.
  const uint8_t* block_bytes = nullptr;
  // Space for the block, then (at plan.landing.received) for the upload.
  PinnedBuffer host;
  // Copy of the bytes that the rank receives, if they contain encoded images:
  // JPEG engines read files in host memory.
  PinnedBuffer received;
  // Address of its landing buffer on the device, set by DeviceStage::Launch.
  uint8_t* landing = nullptr;
  // Done once `received` is complete and the pixels of the landing buffer may
  // be written; recorded for a batch with encoded images.
  Event arrived;
  // Done once the device has read the block and `host`; recorded by the code
  // that enqueues that work.
  Event read;
  // The device's times for it; empty for a micro-batch without a block. Not
  // null.
  std::unique_ptr<StagingTimer> timer;
};

// Stages batches ahead of demand, in its own thread: pulls the block, plans,
// checks the block against the plan, and copies it into pinned memory unless it
// is there already. Next, Return and CheckRest must be called from one thread;
// Cancel, NoteTimes and DropReadBlocks may be called from any.
class BatchStager {
 public:
  struct Options {
    int device = 0;
    PixelType pixel_type = PixelType::kBfloat16;
    // Number of StagedBatches: being staged, staged, not returned, or not yet
    // read by the device. At least 1 more than the caller keeps.
    int batches = 4;
    // Bytes pinned for each at the start; grown when a batch needs more.
    uint64_t batch_bytes = uint64_t{16} << 20;
    // Bytes of blocks that `source` allows to be held. Blocks are copied to the
    // device from where the server wrote them only if the limit allows that for
    // all batches at once.
    uint64_t max_bytes = uint64_t{256} << 20;
  };

  // `source` and `regions` are not owned and outlive the stager; `regions` also
  // outlives all device work on its batches. Errors: as CudaStatus.
  static absl::StatusOr<std::unique_ptr<BatchStager>> Create(
      RoleSource* source, RegionPins* regions, const Options& options);
  ~BatchStager();  // cancels, and joins
  BatchStager(const BatchStager&) = delete;
  BatchStager& operator=(const BatchStager&) = delete;

  // Returns the next staged batch, in order; the caller owns it until Return.
  // Blocks until it is staged. Errors are final and repeated, and come after
  // all earlier batches: as RoleSource::Next, CheckIntact (also of an
  // earlier batch), PlanExchange, BlockView::Parse and Matches, LayOutBatch and
  // CudaStatus.
  absl::StatusOr<StagedBatch*> Next();

  // Gives a batch back, once `read` is recorded. The stager waits for `read`
  // before it reuses the batch, and notes its times.
  void Return(StagedBatch* staged) { queue_.Return(staged); }

  // Call after Next has returned an error and every batch has been given back:
  // waits until the device has read the last batches, and checks that their
  // blocks were intact until then. Errors: as CheckIntact and CudaStatus.
  absl::Status CheckRest();

  // Passes to the source (RoleSource::NoteTimes) the device's times of finished
  // batches that have not been noted yet. Waits neither for the device nor for
  // the thread that enqueues its work. From any thread whose current device is
  // the stager's.
  void NoteTimes();

  // Releases the blocks that the device has read (StagingQueue::DropRead), and
  // with them the memory of a server that is gone. From any thread whose
  // current device is the stager's.
  void DropReadBlocks() { queue_.DropRead(); }

  // Ends a blocked Next, and every later one, with CANCELLED.
  void Cancel();

 private:
  BatchStager(RoleSource* source, RegionPins* regions, const Options& options)
      : source_(source), regions_(regions), options_(options) {}

  void Run();
  // Stages one batch. The error ends the staging.
  absl::Status StageNext();
  absl::Status Fill(StagedBatch* staged);
  // All of these leave the block in place if they fail, so that it can be
  // fetched again.
  absl::Status FillFrom(RoleSource::Block* from, StagedBatch* staged);
  absl::Status Stage(std::unique_ptr<FetchedBlock>* block, StagedBatch* staged);
  absl::Status StageBlock(std::unique_ptr<FetchedBlock>* block,
                          StagedBatch* staged);

  RoleSource* const source_;
  RegionPins* const regions_;
  const Options options_;
  std::vector<std::unique_ptr<StagedBatch>> batches_;

  StagingQueue queue_;
  std::thread thread_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_BATCH_STAGER_H_
