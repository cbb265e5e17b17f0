#ifndef BALLAST_TRAINER_SHIM_CUDA_PATCHIFY_CUDA_H_
#define BALLAST_TRAINER_SHIM_CUDA_PATCHIFY_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer_shim/cuda/device_buffer.h"
#include "trainer_shim/host/patchify.h"
#include "trainer_shim/host/patchify_images.h"

namespace ballast {

// Which kernel runs: the two give the same bytes.
enum class PatchifyKernel {
  kFastest,  // the optimised one where it knows the shape, else the simple one
  kSimple,   // one thread a value, any shape: fallback and oracle
};

// The images that one launch cuts into patches. All device memory is the
// caller's, of the patchifier's device, and stays until the launch is through.
struct PatchifyBatch {
  // Device: [pixel_bytes] 8-bit RGB, each image [grid_h*p, grid_w*p, 3] at its
  // offset. The optimised kernel wants images at multiples of 4 bytes, which a
  // block's are (docs/block.md).
  const uint8_t* pixels = nullptr;
  uint64_t pixel_bytes = 0;
  // The same table twice: in host memory to be checked, and on the device. It
  // is as CheckImages wants it.
  absl::Span<const PatchifyImage> images;
  const PatchifyImage* device_images = nullptr;
  // Device: [out_rows, shape.row()] of `type`, at a multiple of 16 bytes. Rows
  // of no image are left as they are.
  void* out = nullptr;
  uint64_t out_rows = 0;
  PixelType type = PixelType::kBfloat16;
  PatchifyKernel kernel = PatchifyKernel::kFastest;
};

// The GPU's twin of Patchify and PatchifyBfloat16: the same values to the bit.
// They are looked up in the same NormaliseTable; bfloat16s are computed where
// that gives every value of the table, which is tried at creation. Any number
// of images a launch, each byte of pixels read once from the device's memory
// and each value written once. Launching allocates nothing and waits for
// nothing.
//
// Movable. Thread-compatible; Launch is const and may be called concurrently.
class CudaPatchifier {
 public:
  // For the calling thread's current device; copies the table to it and waits.
  // Errors: as CudaStatus.
  static absl::StatusOr<CudaPatchifier> Create(const PatchShape& shape,
                                               const NormaliseTable& table);

  // Gives the work to `stream` of the patchifier's device, which must be the
  // calling thread's current one. No images: nothing is done.
  // Errors: INVALID_ARGUMENT (as CheckImages; memory missing or not aligned),
  // FAILED_PRECONDITION (another device is current), as CudaStatus.
  absl::Status Launch(const PatchifyBatch& batch, cudaStream_t stream) const;

  // By channel, a line (byte * scale + offset) that gives, rounded to bfloat16,
  // what the table holds.
  struct Lines {
    float scale[3] = {};
    float offset[3] = {};
  };

 private:
  CudaPatchifier(const PatchShape& shape, int device, DeviceBuffer values)
      : shape_(shape), device_(device), values_(std::move(values)) {}

  PatchShape shape_;
  int device_;
  int multiprocessors_ = 0;
  std::optional<Lines> lines_;
  DeviceBuffer values_;  // what the bytes become, of each type
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_PATCHIFY_CUDA_H_
