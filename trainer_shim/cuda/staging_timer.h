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

// Measures the device's time for each phase of a micro-batch, by timed events
// that are made once and used for one micro-batch after the other. Nothing here
// waits for the device or allocates; recording costs the host a microsecond or
// two a phase.
//
// A phase lasts from the end of the one before until its own last work is done,
// as the device's clock has it: what the stream waits for in between counts. So
// the exchange counts waiting for peers that are behind, and every phase what
// other streams take of the device meanwhile.
//
// One thread calls Begin and End; Take is for any, on which the device is
// current, or which has none.
class StagingTimer {
 public:
  enum Phase { kCopy, kExchange, kPack, kPhases };

  // For the current device. Errors: as CudaStatus.
  static absl::StatusOr<std::unique_ptr<StagingTimer>> Create();
  StagingTimer(const StagingTimer&) = delete;
  StagingTimer& operator=(const StagingTimer&) = delete;

  // `stream` is given the work of this micro-batch from now on; what was timed
  // before and not taken is forgotten. Errors: as CudaStatus.
  absl::Status Begin(uint64_t step, uint32_t micro_batch, cudaStream_t stream);
  // The work that Begin's `stream` has been given since the phase before is
  // this phase. In their order; kPack ends the micro-batch, and phases left out
  // are absent. Errors: as CudaStatus.
  absl::Status End(Phase phase, cudaStream_t stream);

  // The times, once after the device is through with the micro-batch; empty
  // before and after, and where the device cannot say: what broke it is found
  // by those who give it work.
  std::optional<BatchTimes> Take();

 private:
  StagingTimer() = default;

  // Touched by the thread that gives work while `ended_` is false, and with
  // `mutex_` held while it is true. It is not held while recording, which waits
  // where the device's queue is full, that is for peers: others must not.
  Event begun_;
  Event ends_[kPhases];
  bool has_[kPhases] = {};

  Mutex mutex_;
  BatchTimes batch_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // all recorded, none taken
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_STAGING_TIMER_H_
