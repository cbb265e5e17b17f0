#ifndef BALLAST_TRAINER_SHIM_CUDA_DEVICE_BATCH_H_
#define BALLAST_TRAINER_SHIM_CUDA_DEVICE_BATCH_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/context_slice.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/role_fields.h"
#include "trainer_shim/thd_layout.h"
#include "trainer_shim/totals.h"
#include "trainer_shim/trainer_place.h"

namespace ballast {

// What a rank trains on in one micro-batch, in its GPU's memory: PackedBatch
// there. n samples, T padded tokens, of which this context rank has L = T /
// context.size, P patches, V values a patch (3*temporal_patch*patch*patch).
// Tensors that `fields` does not name are null. Tensors are dense, row-major,
// and begin at multiples of 256 bytes. Pointers are device addresses unless
// said otherwise.
struct DeviceBatch {
  uint64_t step = 0;
  uint32_t micro_batch = 0;  // number within the step
  v1::Role role;
  int device = 0;
  // Where the rank stands in its module, what it receives there, and its part
  // of every sample's tokens.
  TrainerPlace place;
  BatchFields fields;
  ContextSlice context;
  // In the order in which they are packed. PackedSample::placeholder is not
  // set: see `placeholders`.
  std::vector<PackedSample> samples;
  // Host memory, [n]: 1 where the sample could not be read and stands for
  // itself only in size. Valid once the device has packed the batch.
  const uint8_t* placeholders = nullptr;

  // Language.
  const int64_t* input_ids = nullptr;          // [1, L]
  const int64_t* labels = nullptr;             // [1, L]
  const float* loss_mask = nullptr;            // [1, L]
  const int64_t* position_ids = nullptr;       // [3, 1, L] or [1, L]
  uint32_t position_axes = 0;                  // 3 or 1
  const int32_t* cu_seqlens = nullptr;         // [n+1]
  const int32_t* cu_seqlens_padded = nullptr;  // [n+1]
  // The same two in host memory, and T and max_seqlen, all of whole samples.
  TextLayout text;

  // Vision.
  PixelType pixel_type = PixelType::kBfloat16;
  const void* pixel_values = nullptr;          // [P, V]
  uint64_t patch_values = 0;                   // V
  const int64_t* image_grid_thw = nullptr;     // [images, 3]
  const int32_t* vision_cu_seqlens = nullptr;  // [images + 1]
  // The same two in host memory, and P and max_seqlen.
  VisionLayout vision;
  bool dummy_image = false;  // as in PackedBatch

  // Of this rank's samples, of all ranks' in this micro-batch, and in the step.
  PackedTotals totals;
  PackedTotals micro_batch_totals;
  PackedTotals step_totals;

  // Bytes of the block that was pulled, and of what left for other ranks.
  uint64_t bytes_read = 0;
  uint64_t bytes_moved = 0;
  // Of the batch's step. May be kept.
  std::shared_ptr<const v1::StepSchedule> schedule;
};

// What of the batch lies in host memory anyway: all but its tensors.
PackedBatch WithoutTensors(const DeviceBatch& batch);

// The batch in host memory, for tests and tools. Waits for `stream`, which must
// be the one that the batch was asked for on. Errors: as CudaStatus.
absl::StatusOr<PackedBatch> CopyToHost(const DeviceBatch& batch,
                                       cudaStream_t stream);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DEVICE_BATCH_H_
