#ifndef BALLAST_TRAINER_SHIM_CUDA_STAGING_TIMER_H_
#define BALLAST_TRAINER_SHIM_CUDA_STAGING_TIMER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include <cuda_runtime_api.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "trainer_shim/batch_times.h"
#include "trainer_shim/cuda/cuda_handles.h"

namespace ballast {

// Measures the device's time for each phase of a micro-batch with timed events,
// which are created once and reused for every micro-batch. Nothing here waits
// for the device or allocates; recording costs the host a microsecond or two
// per phase.
//
// By the device's clock, a phase lasts from the end of the phase before until
// its own last work is done, including what the stream waits for in between. So
// the exchange includes waiting for peers that are behind, decoding includes
// waiting for the JPEG engines, and every phase includes the time that other
// streams take of the device.
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
  // recording waits when the device's queue is full, that is for peers, and
  // other threads must not.
  Event begun_;
  Event ends_[kPhases];
  bool has_[kPhases] = {};

  Mutex mutex_;
  BatchTimes batch_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // all recorded, none taken
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_STAGING_TIMER_H_
