#include "trainer_shim/ballast_rank/cuda_backend.h"

namespace ballast {

absl::Status RunCudaWorld(const v1::AttachResponse&,
                          const std::vector<v1::Role>&, const WorldOptions&,
                          const MakeClient&, const OnBatch&) {
  return absl::UnimplementedError(
      "--backend cuda: this build found no CUDA toolkit (docs/gpu_tests.md); "
      "use --backend host");
}

const char* CudaSupport() { return "without CUDA"; }

}  // namespace ballast
