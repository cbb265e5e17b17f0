#ifndef BALLAST_TRAINER_SHIM_CUDA_PATCHIFY_CUDA_H_
#define BALLAST_TRAINER_SHIM_CUDA_PATCHIFY_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/patchify.h"

namespace ballast {

// The kernel to run; both give the same bytes.
enum class PatchifyKernel {
  kFastest,  // the optimised one if it supports the shape, else the simple one
  kSimple,   // one thread per value, any shape: fallback and oracle
};

// The images that one launch patchifies. All device memory belongs to the
// caller, is on the patchifier's device, and stays valid until the launch is
// done.
struct PatchifyBatch {
  // Device: [pixel_bytes] 8-bit RGB, each image [height, width, 3] at its
  // offset. The optimised kernels need images at multiples of 4 bytes, for
  // tiles of 8, as they are in a block (docs/block.md).
  const uint8_t* pixels = nullptr;
  uint64_t pixel_bytes = 0;
  // The same table twice, as CheckImages requires it: in host memory, for
  // checking, and on the device.
  absl::Span<const PatchifyImage> images;
  const PatchifyImage* device_images = nullptr;
  // Device: [out_rows, shape.row()] of `type`, at a multiple of 16 bytes. Rows
  // that belong to no image are left unchanged.
  void* out = nullptr;
  uint64_t out_rows = 0;
  // As in PatchShape, for tiles; 0 for patches.
  uint32_t tile_h = 0;
  uint32_t tile_w = 0;
  PixelType type = PixelType::kBfloat16;
  PatchifyKernel kernel = PatchifyKernel::kFastest;
};

// Patchify and PatchifyBfloat16 on the GPU: the same values to the bit. Values
// are looked up in the same NormaliseTable; bfloat16s are computed instead if
// the formula gives every value of the table, which Create checks. One launch
// takes any number of images, reads each byte of pixels once from device memory
// and writes each value once. Launching neither allocates nor waits.
//
// Movable. Thread-compatible; Launch is const and may be called concurrently.
class CudaPatchifier {
 public:
  // Creates one for the calling thread's current device. A launch's batch, not
  // `shape`, has the sides of tiles. Copies the table to the device and waits
  // for the copy. Errors: as CudaStatus.
  static absl::StatusOr<CudaPatchifier> Create(const PatchShape& shape,
                                               const NormaliseTable& table);

  // Enqueues the work on `stream`. The patchifier's device must be the calling
  // thread's current one. Does nothing without images. Errors: as CheckImages
  // and CudaStatus; INVALID_ARGUMENT (memory missing or not aligned),
  // FAILED_PRECONDITION (another device is current).
  absl::Status Launch(const PatchifyBatch& batch, cudaStream_t stream) const;

  // A line for each channel: byte * scale + offset, rounded to bfloat16, equals
  // the table's value.
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
  DeviceBuffer values_;  // the table, in each type
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_PATCHIFY_CUDA_H_
