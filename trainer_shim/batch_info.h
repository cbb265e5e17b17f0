#ifndef BALLAST_TRAINER_SHIM_BATCH_INFO_H_
#define BALLAST_TRAINER_SHIM_BATCH_INFO_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/context_slice.h"
#include "trainer_shim/crop_layout.h"
#include "trainer_shim/embedding_plan.h"
#include "trainer_shim/host/patchify.h"
#include "trainer_shim/role_fields.h"
#include "trainer_shim/tensor_table.h"
#include "trainer_shim/thd_layout.h"
#include "trainer_shim/totals.h"
#include "trainer_shim/trainer_place.h"
#include "trainer_shim/video_layout.h"

namespace ballast {

// The sample at one place of a batch.
struct PackedSample {
  uint64_t position = 0;
  uint32_t source = 0;   // number of the source in the configuration
  uint64_t ordinal = 0;  // number in the source's index
  std::string name;      // "SOURCE:ORDINAL"
  // The sample could not be read: grey images and unsupervised tokens replace
  // it. Not set for batches in device memory: see DeviceBatch::placeholders.
  bool placeholder = false;
};

// A packed batch apart from the memory of its tensors, the same for host and
// device memory. n samples.
struct BatchInfo {
  uint64_t step = 0;
  uint32_t micro_batch = 0;        // number within the step
  uint32_t num_micro_batches = 0;  // of the step, the same on every rank
  v1::Role role;
  // The rank's place in its module, the tensors that it receives there, and
  // its part of every sample's tokens.
  TrainerPlace place;
  BatchFields fields;
  ContextSlice context;
  // In packing order, which is the same on the paired ranks of the other
  // module. With placement `split` the two modules hold different samples.
  std::vector<PackedSample> samples;

  // Language.
  uint32_t position_axes = 0;  // 3 (MRoPE), 4 (HunyuanVL) or 1
  int32_t max_seqlen = 0;      // longest padded length of a whole sample
  TextLayout text;             // of whole samples; empty if no text is received
  // Each sample is a row of its own, of max_seqlen tokens, and there are no
  // bounds (packing.mode `padded`).
  bool padded = false;

  // Vision.
  PixelType pixel_type = PixelType::kFloat32;
  // Empty if no images are received; the crops and videos of the batch.
  VisionLayout vision;
  CropLayout crops;
  VideoLayout videos;
  // Longest attention segment of images and videos, in patches.
  int32_t vision_max_seqlen = 0;
  // The last image belongs to no sample: one small crop, mid-grey. It
  // lets a rank that has too few images of its own take part in the vision
  // tower's collectives (ModuleSchedule.dummy_rank). No token refers to it:
  // multiply the tower's output for it by zero instead of dropping it, so that
  // gradients flow on every rank. No totals count it.
  bool dummy_image = false;

  // Either module, with placement `split`: the same on both batches of a
  // process.
  EmbeddingPlan embeddings;

  // The tensors that the rank receives, in the order of the table, and the
  // sizes of their memory (LayOutTensors).
  std::shared_ptr<const TensorTable> table;
  std::vector<BatchTensor> tensors;
  uint64_t packed_bytes = 0;
  uint64_t list_bytes = 0;

  // Sums over this rank's samples (whole samples, for either module), over the
  // samples of all data-parallel ranks in this micro-batch, and over the whole
  // step.
  PackedTotals totals;
  PackedTotals micro_batch_totals;
  PackedTotals step_totals;

  // Bytes of the pulled block, and bytes sent to other ranks. Both follow from
  // the schedule. 0 if no block is pulled.
  uint64_t bytes_read = 0;
  uint64_t bytes_moved = 0;

  // The schedule of the batch's step. May outlive the batch.
  std::shared_ptr<const v1::StepSchedule> schedule;
};

// A step's schedule, and the totals of all its samples.
struct StepInfo {
  std::shared_ptr<const v1::StepSchedule> schedule;
  PackedTotals totals;
};

// `padding`: JobShape::padding.
StepInfo StepInfoOf(v1::StepSchedule schedule, const SamplePadding& padding);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BATCH_INFO_H_
