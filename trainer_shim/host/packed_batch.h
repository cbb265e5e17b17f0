#ifndef BALLAST_TRAINER_SHIM_HOST_PACKED_BATCH_H_
#define BALLAST_TRAINER_SHIM_HOST_PACKED_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "trainer_shim/context_slice.h"
#include "trainer_shim/host/patchify.h"
#include "trainer_shim/role_fields.h"
#include "trainer_shim/totals.h"
#include "trainer_shim/trainer_place.h"

namespace ballast {

// Which sample stands in a place of the batch.
struct PackedSample {
  uint64_t position = 0;
  uint32_t source = 0;   // number of the source in the configuration
  uint64_t ordinal = 0;  // number in the source's index
  std::string name;      // "SOURCE:ORDINAL"
  // The sample could not be read: grey images, unsupervised tokens.
  bool placeholder = false;
};

// What a rank trains on in one micro-batch, in host memory. Tensors that
// `fields` does not name are empty. docs/thd_format.md explains the arrays. n
// samples, T padded tokens, of which this context rank has L = T /
// context.size, P patches. All tensors are dense and row-major.
struct PackedBatch {
  uint64_t step = 0;
  uint32_t micro_batch = 0;  // number within the step
  v1::Role role;
  // Where the rank stands in its module, what it receives there, and its part
  // of every sample's tokens.
  TrainerPlace place;
  BatchFields fields;
  ContextSlice context;
  // In the order in which they are packed; the same on paired ranks of the
  // other module.
  std::vector<PackedSample> samples;

  // Language.
  std::vector<int64_t> input_ids;  // [1, L]; the pad id in alignment padding
  // [1, L]; already shifted; -100 where unsupervised and in padding.
  std::vector<int64_t> labels;
  std::vector<float> loss_mask;  // [1, L]; 1 where labels is not -100, else 0
  // [3, 1, L] (MRoPE) or [1, L]; begins again with each sample; 0 in padding.
  std::vector<int64_t> position_ids;
  uint32_t position_axes = 0;  // 3 or 1
  // Of whole samples, not of the context rank's parts, likewise max_seqlen.
  std::vector<int32_t> cu_seqlens;         // [n+1], real lengths
  std::vector<int32_t> cu_seqlens_padded;  // [n+1], places; ends with T
  int32_t max_seqlen = 0;                  // longest padded length

  // Vision. [P, 3*temporal_patch*patch*patch] in the processor's patch order,
  // in one of the two; bfloat16 as its bits.
  PixelType pixel_type = PixelType::kFloat32;
  std::vector<float> pixel_values;
  std::vector<uint16_t> pixel_values_bf16;
  std::vector<int64_t> image_grid_thw;     // [number of images, 3]
  std::vector<int32_t> vision_cu_seqlens;  // [number of images + 1]
  int32_t vision_max_seqlen = 0;
  // The last image belongs to no sample: grid (1, merge, merge), mid-grey,
  // there so that this rank, which has too few images of its own, takes part in
  // the vision tower's collectives (ModuleSchedule.dummy_rank). No token refers
  // to it: what comes out of the tower for it must be multiplied by zero, not
  // dropped, so that gradients flow on every rank. No totals count it.
  bool dummy_image = false;

  // Of this rank's samples (for either module, and whole ones: a context rank's
  // peers have the same), of all data-parallel ranks' in this micro-batch, and
  // of all ranks' in the step.
  PackedTotals totals;
  PackedTotals micro_batch_totals;
  PackedTotals step_totals;

  // How it came about. Bytes of the block that was pulled, and of what left for
  // other ranks; both follow from the schedule.
  uint64_t bytes_read = 0;
  uint64_t bytes_moved = 0;
  // What packing took this time, exchange and waiting not counted.
  absl::Duration pack_time;
  // What the exchange took, the delays of other ranks counted. 0: there is
  // none.
  absl::Duration exchange_time;
};

// XXH3-128 over all tensors and dummy_image (name, length and bytes of each, in
// the order above), as 32 hexadecimal digits: equal batches have equal digests.
std::string DigestOf(const PackedBatch& batch);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_PACKED_BATCH_H_
