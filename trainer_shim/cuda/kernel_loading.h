#ifndef BALLAST_TRAINER_SHIM_CUDA_KERNEL_LOADING_H_
#define BALLAST_TRAINER_SHIM_CUDA_KERNEL_LOADING_H_

#include <initializer_list>

#include "absl/status/status.h"

namespace ballast {

// Loads kernels, given by the addresses of their host functions, onto the
// current device; null is skipped. Otherwise a kernel's first launch loads it,
// which may wait for all work on the device, and without end if that work waits
// for a peer. Errors: as CudaStatus.
absl::Status LoadKernels(std::initializer_list<const void*> kernels);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_KERNEL_LOADING_H_
