#ifndef BALLAST_TRAINER_SHIM_TENSOR_LIST_H_
#define BALLAST_TRAINER_SHIM_TENSOR_LIST_H_

#include <array>
#include <cstdint>
#include <vector>

#include "trainer_shim/batch_info.h"

namespace ballast {

// The numbers of ballast_dtype (c_api_base.h).
enum class ElementType {
  kInt32 = 2,
  kInt64 = 3,
  kFloat32 = 4,
  kBfloat16 = 5,
  kBool = 6,
};

inline constexpr int kHostMemory = -1;

// A dense, row-major array. Owns nothing.
struct TensorView {
  const char* name = "";  // static
  ElementType type = ElementType::kInt64;
  const void* data = nullptr;
  int device = kHostMemory;           // or CUDA's number
  uint32_t rank = 0;                  // number of dimensions, 1 to 4
  std::array<int64_t, 4> shape = {};  // the first `rank`, then 0
};

// Addresses and sizes of a batch's tensors, for ListTensors. Tensors outside
// the batch's fields are ignored.
struct TensorAddresses {
  int device = kHostMemory;   // of all but the small ones' copies below
  int64_t tokens = 0;         // L, of this context rank
  int64_t images = 0;         // crops
  int64_t bounds = 0;         // of cu_seqlens
  int64_t vision_bounds = 0;  // of vision_cu_seqlens
  const void* input_ids = nullptr;
  const void* labels = nullptr;
  const void* loss_mask = nullptr;
  const void* position_ids = nullptr;
  const void* attention_mask = nullptr;
  const void* cu_seqlens = nullptr;
  const void* cu_seqlens_padded = nullptr;
  const void* pixel_values = nullptr;
  const void* image_grid_thw = nullptr;
  const void* vision_cu_seqlens = nullptr;
  const void* pixel_values_videos = nullptr;
  const void* video_grid_thw = nullptr;
  const void* second_per_grid_ts = nullptr;
  const void* video_cu_seqlens = nullptr;
  const void* imgs_sizes = nullptr;
  const void* crops_per_image = nullptr;
  const void* image_sizes = nullptr;
  const void* spatial_shapes = nullptr;
  const void* pixel_attention_mask = nullptr;
  const void* embedding_order = nullptr;
  // Copies of the small tensors in host memory.
  const void* cu_seqlens_host = nullptr;
  const void* cu_seqlens_padded_host = nullptr;
  const void* image_grid_thw_host = nullptr;
  const void* vision_cu_seqlens_host = nullptr;
};

// Replaces the contents of `tensors` with the tensors of a batch, in the order
// of c_api_batch.h. Allocates only if `tensors` lacks the capacity.
void ListTensors(const BatchInfo& info, const TensorAddresses& from,
                 std::vector<TensorView>* tensors);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_TENSOR_LIST_H_
