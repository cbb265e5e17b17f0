#include "trainer_shim/cuda/kernel_loading.h"

#include <cuda_runtime_api.h>

#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_status.h"

namespace ballast {

absl::Status LoadKernels(std::initializer_list<const void*> kernels) {
  for (const void* kernel : kernels) {
    if (kernel == nullptr) continue;
    cudaFuncAttributes attributes;
    BALLAST_RETURN_IF_ERROR(CudaStatus(
        cudaFuncGetAttributes(&attributes, kernel), "loading a kernel"));
  }
  return absl::OkStatus();
}

}  // namespace ballast
