#ifndef BALLAST_TRAINER_SHIM_CUDA_DEVICE_BATCH_H_
#define BALLAST_TRAINER_SHIM_CUDA_DEVICE_BATCH_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "trainer_shim/batch_info.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/tensor_list.h"
#include "trainer_shim/thd_layout.h"

namespace ballast {

// A rank's packed batch of one micro-batch in GPU memory; PackedBatch is its
// counterpart on the host. There are n samples, T padded tokens, of which this
// context rank has L = T / context.size, and R = crops.rows() rows of V =
// crops.shape.row() values. Tensors that `fields` does not name
// are null. If `padded`, [1, L] stands for [n, L / n], one row a sample.
// Tensors are dense, row-major, and begin at multiples of 256 bytes. Pointers
// are device addresses unless said otherwise. PackedSample::placeholder is not
// set: see `placeholders`.
struct DeviceBatch : BatchInfo {
  int device = 0;
  // Host memory, [n]: 1 if the sample could not be read and a placeholder of
  // its size replaces it. Valid once the device has packed the batch.
  const uint8_t* placeholders = nullptr;

  // Language.
  const int64_t* input_ids = nullptr;     // [1, L]
  const int64_t* labels = nullptr;        // [1, L]
  const float* loss_mask = nullptr;       // [1, L]
  const int64_t* position_ids = nullptr;  // [3, 1, L] or [1, L]
  // [n, L / n], only if `padded`: 1 for tokens of a sample, 0 for padding.
  const uint8_t* attention_mask = nullptr;
  const int32_t* cu_seqlens = nullptr;         // [n+1]
  const int32_t* cu_seqlens_padded = nullptr;  // [n+1]
  // The last two in host memory, and T; all for whole samples.
  TextLayout text;

  // Vision.
  const void* pixel_values = nullptr;          // [R, V]
  const int64_t* image_grid_thw = nullptr;     // [n crops, 3]
  const int32_t* vision_cu_seqlens = nullptr;  // [n crops + 1]
  // Null in jobs whose model takes no videos.
  const void* pixel_values_videos = nullptr;  // [videos.rows(), V]
  const int64_t* video_grid_thw = nullptr;    // [n videos, 3]
  const float* second_per_grid_ts = nullptr;  // [n videos]
  const int32_t* video_cu_seqlens = nullptr;  // [temporal patches + 1]
  // The arrays of CropLayout of these names; null if it has none.
  const int64_t* imgs_sizes = nullptr;
  const int64_t* crops_per_image = nullptr;
  const int64_t* image_sizes = nullptr;
  const int64_t* spatial_shapes = nullptr;
  const uint8_t* pixel_attention_mask = nullptr;
  // image_grid_thw and vision_cu_seqlens in host memory.
  VisionLayout vision;

  // Either module: embeddings.order.
  const int64_t* embedding_order = nullptr;
};

// The parts of the batch that are in host memory: everything except its
// tensors.
PackedBatch WithoutTensors(const DeviceBatch& batch);

// The addresses of the batch's tensors, for ListTensors.
TensorAddresses AddressesOf(const DeviceBatch& batch);

// Copies the batch to host memory, for tests and tools. Waits for `stream`,
// which must wait for the batch. Errors: as CudaStatus.
absl::StatusOr<PackedBatch> CopyToHost(const DeviceBatch& batch,
                                       cudaStream_t stream);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DEVICE_BATCH_H_
