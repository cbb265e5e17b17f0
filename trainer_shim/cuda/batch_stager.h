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

// One micro-batch, planned, checked and in pinned memory: all that the host has
// to do for it but for giving work to the device.
struct StagedBatch {
  ExchangePlan exchange;
  BatchLayout layout;
  StagingPlan plan;
  // What is known of the batch without a look at the device; its pointers are
  // null.
  DeviceBatch batch;
  // The block, in pinned memory: where the server wrote it, or in `host`. Null
  // without one: the rank receives no tensor, or has it from a tensor peer.
  const uint8_t* block_bytes = nullptr;
  // What holds the former; null where the block lies in `host`.
  std::unique_ptr<FetchedBlock> block;
  // Room for the block, then (from plan.landing.received on) the upload.
  PinnedBuffer host;
  // Written by the device: [samples]. Zeros without a block.
  PinnedBuffer placeholders;
  // The device has packed the batch, passed it on to or received it from tensor
  // peers, and so has read `host`; recorded by who gives it the work.
  Event packed;
  // What the device takes for it; says nothing of a window without a block. Not
  // null.
  std::unique_ptr<StagingTimer> timer;
};

// Makes windows ready ahead of demand, in a thread of its own: pulls the block,
// plans, checks the block against the plan, and copies it into pinned memory
// unless it lies in some already.
// One thread calls Next and Return; Cancel is for any.
class BatchStager {
 public:
  struct Options {
    int device = 0;
    PixelType pixel_type = PixelType::kBfloat16;
    // Windows that exist: those being made ready, ready, and not returned. At
    // least 1 more than the caller keeps.
    int windows = 4;
    // Pinned for each window from the start; one that needs more gets it.
    uint64_t window_bytes = uint64_t{16} << 20;
    // Bytes of blocks that `source` lets be held. A block stays where it lies
    // for as long as the device may copy it only if all windows' might.
    uint64_t max_bytes = uint64_t{256} << 20;
  };

  // `source` and `regions` are not owned and outlive the feed, `regions` all
  // that its windows gave the device to do. Errors: as CudaStatus.
  static absl::StatusOr<std::unique_ptr<BatchStager>> Create(
      RoleSource* source, PinnedRegions* regions, const Options& options);
  ~BatchStager();  // cancels, and joins
  BatchStager(const BatchStager&) = delete;
  BatchStager& operator=(const BatchStager&) = delete;

  // The next window, in order; the caller's until it is returned. Blocks until
  // it is ready. Errors, final and repeated, after the windows before: as
  // RoleSource::Next, CheckIntact (of a window before), PlanExchange,
  // BlockView::Parse and Matches, LayOutBatch and CudaStatus.
  absl::StatusOr<StagedBatch*> Next();

  // Gives a window back. The feed waits for `packed` before it uses it again,
  // and notes its times.
  void Return(StagedBatch* window);

  // Tells the source (RoleSource::NoteTimes) what the device took for the
  // windows that it is through with and whose times are not noted yet. Never
  // waits for the device, nor for who gives it work. From any thread whose
  // current device is the feed's.
  void NoteTimes();

  // Ends a Next that blocks, and every later one, with CANCELLED.
  void Cancel();

 private:
  BatchStager(RoleSource* source, PinnedRegions* regions, const Options& options)
      : source_(source), regions_(regions), options_(options) {}

  void Run();
  // Blocks until a window is free; null when cancelled.
  StagedBatch* TakeFree();
  absl::Status Fill(StagedBatch* window);
  absl::Status Stage(std::unique_ptr<FetchedBlock> block, StagedBatch* window);
  absl::Status StageBlock(std::unique_ptr<FetchedBlock> block,
                          StagedBatch* window);
  void Describe(const v1::StepSchedule& schedule, uint32_t micro_batch,
                StagedBatch* window);

  RoleSource* const source_;
  PinnedRegions* const regions_;
  const Options options_;
  std::vector<std::unique_ptr<StagedBatch>> windows_;
  // Of the step at hand; touched by the thread only.
  std::shared_ptr<const v1::StepSchedule> schedule_;
  PackedTotals step_totals_;

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
