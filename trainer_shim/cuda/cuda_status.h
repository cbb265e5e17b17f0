#ifndef BALLAST_TRAINER_SHIM_CUDA_CUDA_STATUS_H_
#define BALLAST_TRAINER_SHIM_CUDA_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// The only place where CUDA's errors become statuses. `what` names the failed
// operation ("copy of 12 bytes to the device").
//
// Codes: RESOURCE_EXHAUSTED (the device's or the pinned memory is used up),
// FAILED_PRECONDITION (no device, no driver, or one too old for the runtime),
// INTERNAL (all else). After INTERNAL the device's context may be lost: most of
// CUDA's errors stick, and every later call reports the same.
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_CUDA_STATUS_H_
