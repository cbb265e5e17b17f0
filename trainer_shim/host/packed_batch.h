#ifndef BALLAST_TRAINER_SHIM_HOST_PACKED_BATCH_H_
#define BALLAST_TRAINER_SHIM_HOST_PACKED_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer_shim/batch_info.h"
#include "trainer_shim/tensor_list.h"

namespace ballast {

// A rank's packed batch of one micro-batch, in host memory. Tensors that
// `fields` does not name are empty. docs/thd_format.md explains the arrays.
// There are n samples, T padded tokens, of which this context rank has L = T /
// context.size. All tensors are dense and row-major. If `padded`, [1, L] stands
// for [n, L / n], one row a sample.
struct PackedBatch : BatchInfo {
  // Language.
  std::vector<int64_t> input_ids;  // [1, L]; the pad id in alignment padding
  // [1, L]; already shifted; -100 where unsupervised and in padding.
  std::vector<int64_t> labels;
  std::vector<float> loss_mask;  // [1, L]; 1 where labels is not -100, else 0
  // [3, 1, L] (MRoPE) or [1, L]; restarts at each sample; 0 in padding.
  std::vector<int64_t> position_ids;
  // [n, L / n], only if `padded`: 1 for tokens of a sample, 0 for padding.
  std::vector<uint8_t> attention_mask;
  // Bounds of whole samples, not of the context rank's parts.
  std::vector<int32_t> cu_seqlens;         // [n+1], real lengths
  std::vector<int32_t> cu_seqlens_padded;  // [n+1], places; ends with T

  // Vision; BatchInfo::crops has the lists of crops. [crops.rows(),
  // crops.shape.row()] in the processor's order, in the vector that pixel_type
  // selects; bfloat16 as its bits.
  std::vector<float> pixel_values;
  std::vector<uint16_t> pixel_values_bf16;
  std::vector<int64_t> image_grid_thw;     // [number of crops, 3]
  std::vector<int32_t> vision_cu_seqlens;  // [number of crops + 1]
  // Videos; BatchInfo::videos has the lists of them. [videos.rows(),
  // crops.shape.row()], in the vector that pixel_type selects.
  std::vector<float> pixel_values_videos;
  std::vector<uint16_t> pixel_values_videos_bf16;

  // Time of packing, without exchange, decoding and waiting.
  absl::Duration pack_time;
  // Time of decoding the images that travelled encoded. 0: none did.
  absl::Duration decode_time;
  // Time of the exchange, including other ranks' delays. 0: no exchange.
  absl::Duration exchange_time;
};

// XXH3-128 over all tensors, dummy_image and a planned embedding plan (name,
// length and bytes of each, in the order above), as 32 hexadecimal digits:
// equal batches have equal digests.
std::string DigestOf(const PackedBatch& batch);

// XXH3-128 over each sample's part of the tensors, in packing order: the digest
// of a sample does not depend on the samples beside it. Language: this context
// rank's part of its ids, labels, mask and positions. Vision: its images' grids
// and pixels. As DigestOf, in 32 hexadecimal digits.
std::vector<std::string> SampleDigests(const PackedBatch& batch);

// The addresses of the batch's tensors, for ListTensors.
TensorAddresses AddressesOf(const PackedBatch& batch);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_PACKED_BATCH_H_
