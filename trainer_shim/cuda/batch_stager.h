#ifndef BALLAST_TRAINER_SHIM_CUDA_BATCH_STAGER_H_
#define BALLAST_TRAINER_SHIM_CUDA_BATCH_STAGER_H_

#include <cstdint>
#include <deque>
#include <memory>
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
#include "trainer_shim/cuda/pinned_regions.h"
#include "trainer_shim/cuda/staging_plan.h"
#include "trainer_shim/cuda/staging_timer.h"
#include "trainer_shim/exchange_plan.h"
#include "trainer_shim/role_source.h"

namespace ballast {

// One micro-batch, planned, checked and in pinned memory: all the host's work
// for it apart from giving work to the device.
struct StagedBatch {
  ExchangePlan exchange;
  BatchLayout layout;
  StagingPlan plan;
  // All that is known of the batch without a look at the device; its pointers
  // are null. Moves to the pool's entry at the launch.
  DeviceBatch batch;
  // The block, in pinned memory: where the server wrote it, or in `host`. Null
  // without one: the rank receives no tensor, or has it from a tensor peer.
  const uint8_t* block_bytes = nullptr;
  // Keeps the former; null where the block lies in `host`.
  std::unique_ptr<FetchedBlock> block;
  // Room for the block, then (from plan.landing.received on) the upload.
  PinnedBuffer host;
  // The device has read the block and `host`; recorded by whoever gives it that
  // work.
  Event read;
  // The device's times for it; says nothing of a micro-batch without a block.
  // Not null.
  std::unique_ptr<StagingTimer> timer;
};

// Stages batches ahead of demand, in a thread of its own: pulls the block,
// plans, checks the block against the plan, and copies it into pinned memory
// unless it lies in some already.
// One thread calls Next, Return and CheckRest; Cancel and NoteTimes are for
// any.
class BatchStager {
 public:
  struct Options {
    int device = 0;
    PixelType pixel_type = PixelType::kBfloat16;
    // StagedBatches that exist: those being staged, staged, and not returned or
    // not yet read by the device. At least 1 more than the caller keeps.
    int batches = 4;
    // Pinned for each from the start; one that needs more gets it.
    uint64_t batch_bytes = uint64_t{16} << 20;
    // Bytes of blocks that `source` lets be held. A block stays where it lies
    // for as long as the device may copy it only if all batches' blocks might.
    uint64_t max_bytes = uint64_t{256} << 20;
  };

  // `source` and `regions` are not owned and outlive the stager, `regions` also
  // all work that the device was given with its batches. Errors: as CudaStatus.
  static absl::StatusOr<std::unique_ptr<BatchStager>> Create(
      RoleSource* source, PinnedRegions* regions, const Options& options);
  ~BatchStager();  // cancels, and joins
  BatchStager(const BatchStager&) = delete;
  BatchStager& operator=(const BatchStager&) = delete;

  // The next staged batch, in order; the caller's until it is returned. Blocks
  // until it is staged. Errors, final and repeated, after the batches before:
  // as RoleSource::Next, CheckIntact (also of a batch before), PlanExchange,
  // BlockView::Parse and Matches, LayOutBatch and CudaStatus.
  absl::StatusOr<StagedBatch*> Next();

  // Gives a batch back. The stager waits for `read` before it uses it again,
  // and notes its times.
  void Return(StagedBatch* staged);

  // Once Next has answered an error and every batch is returned: waits until
  // the device has read the last ones, and answers whether their blocks were
  // whole until then. Errors: as CheckIntact and CudaStatus.
  absl::Status CheckRest();

  // Tells the source (RoleSource::NoteTimes) the device's times for batches
  // that it is through with and whose times are not noted yet. Waits neither
  // for the device nor for the thread that gives it work. From any thread whose
  // current device is the stager's.
  void NoteTimes();

  // Ends a Next that blocks, and every later one, with CANCELLED.
  void Cancel();

 private:
  BatchStager(RoleSource* source, PinnedRegions* regions,
              const Options& options)
      : source_(source), regions_(regions), options_(options) {}

  void Run();
  // Blocks until a batch is free; null when cancelled.
  StagedBatch* TakeFree();
  // Waits until the device has read `staged`, and checks and drops its block.
  absl::Status Finish(StagedBatch* staged);
  absl::Status Fill(StagedBatch* staged);
  absl::Status Stage(std::unique_ptr<FetchedBlock> block, StagedBatch* staged);
  absl::Status StageBlock(std::unique_ptr<FetchedBlock> block,
                          StagedBatch* staged);

  RoleSource* const source_;
  PinnedRegions* const regions_;
  const Options options_;
  std::vector<std::unique_ptr<StagedBatch>> batches_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<StagedBatch*> free_ ABSL_GUARDED_BY(mutex_);
  std::deque<StagedBatch*> ready_ ABSL_GUARDED_BY(mutex_);
  absl::Status end_ ABSL_GUARDED_BY(mutex_);  // after what is ready
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_BATCH_STAGER_H_
