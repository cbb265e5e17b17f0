#ifndef BALLAST_TRAINER_SHIM_CUDA_PLANE_KERNELS_H_
#define BALLAST_TRAINER_SHIM_CUDA_PLANE_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer_shim/resample_plan.h"

namespace ballast {

// A batch that becomes pixels. All memory is the device's, belongs to the
// caller, and stays valid until the launch is done.
struct PlaneBatch {
  // The plan in host memory, for sizes, and its three tables on the device.
  const ResamplePlan* plan = nullptr;
  const ResampleImage* images = nullptr;
  const AxisTaps* taps = nullptr;
  const int32_t* weights = nullptr;
  const uint8_t* planes = nullptr;  // at a multiple of kPlaneAlignment
  uint8_t* narrow = nullptr;        // plan->narrow_bytes, at a multiple of 4
  uint8_t* out = nullptr;           // each image's pixels at its offset
};

// Planes to resized RGB pixels on the GPU: upsampling, colours and the
// horizontal pass in one kernel, which keeps full-size RGB in shared memory,
// then the vertical pass. Equal to the bit to
// trainer_shim/host/host_image_decoder.h.
// Thread-safe.
class PlaneKernels {
 public:
  // Loads the kernels onto the current device. Errors: as CudaStatus.
  static absl::StatusOr<PlaneKernels> Create();

  // Enqueues two launches for all images; returns at once. The device of Create
  // must be current. Errors: INVALID_ARGUMENT (null memory, a picture wider
  // than kMaxEngineSide); as CudaStatus.
  absl::Status Launch(const PlaneBatch& batch, cudaStream_t stream) const;

 private:
  PlaneKernels() = default;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_PLANE_KERNELS_H_
