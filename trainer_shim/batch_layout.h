#ifndef BALLAST_TRAINER_SHIM_BATCH_LAYOUT_H_
#define BALLAST_TRAINER_SHIM_BATCH_LAYOUT_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/block/block_layout.h"
#include "proto/block/block_plan.h"
#include "proto/image/resample_weights.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/delivery_rule.h"
#include "trainer_shim/crop_layout.h"
#include "trainer_shim/embedding_plan.h"
#include "trainer_shim/exchange_plan.h"
#include "trainer_shim/host/patchify.h"
#include "trainer_shim/role_fields.h"
#include "trainer_shim/tensor_table.h"
#include "trainer_shim/thd_layout.h"
#include "trainer_shim/totals.h"

namespace ballast {

// The fields of a job (sources[].fields), as samples and batches have them.
struct FieldTable {
  struct Field {
    std::string tensor;  // "fields.NAME"
    ElementType type = ElementType::kFloat32;
    FieldPlace place;
    bool per_turn = false;
  };
  std::vector<Field> fields;
  FieldCounts counts;
  // The row whose numbers scale loss_mask (kWeightField); -1: none.
  int weight_row = -1;
};

// Errors: INVALID_ARGUMENT (over kMaxFields; a name twice or empty; a type or
// `per` that this release does not know).
absl::StatusOr<std::shared_ptr<const FieldTable>> MakeFieldTable(
    const v1::Job& job);

// The tensors of the fields, for the table of a job.
TensorTable GetFieldRows(const FieldTable& fields);

// The rows of features of the batch's clips of audio. A plain value.
struct ClipLayout {
  bool listed = false;  // the rank's module takes audio
  uint32_t width = 0;   // numbers of a row
  // Of each clip, the rows that count.
  std::vector<int64_t> frames;
  // [clips+1]: the row at which each begins; ends with the number of rows.
  std::vector<int32_t> cu_rows;
};

// The part of the job that a rank of one module needs to plan and pack. It is
// checked once, so that later code can rely on every size.
struct JobShape {
  uint32_t dp = 1;     // data-parallel ranks of the module
  uint32_t align = 1;  // tokens
  // The padding that totals count, on ranks of any module: the language
  // module's if there is one, since its samples are what is trained on.
  // Language ranks lay out their samples with this padding.
  SamplePadding padding;
  DeliveryRule delivery;
  BlockGeometry block;
  uint32_t merge = 1;  // patches on a side that make one image token
  CropForm crops;
  uint32_t dummy_rows = 1;  // Job.ClipShape.dummy_rows
  // Images may pass through encoded (model.decode `device`); the rank then
  // resizes them with this.
  bool encoded_images = false;
  Resampling resampling;
  std::array<double, 3> mean = {};
  std::array<double, 3> std = {};
  int32_t pad_id = 0;

  // The rank's place in the module, the fields that it receives there, and its
  // slice of the text tensors.
  TrainerPlace place;
  ModuleLayout layout;
  BatchFields fields;
  // Of every pack; the whole sequence where packs differ in their ranks.
  ContextSlice context;
  // Above 1: the most ranks that share a pack, as the schedule says of each
  // (packing.dynamic_cp).
  uint32_t dynamic_cp = 1;
  // The fields of the job's samples; of any module, though only language has
  // them. Never null from GetShape.
  std::shared_ptr<const FieldTable> field_table;
  // The tensors that batches may have.
  std::shared_ptr<const TensorTable> tensors;
  // balance.placement is `split`: batches hold an EmbeddingPlan of each of
  // these, or of the rank's own.
  bool split_placement = false;
  std::vector<v1::Module> encoders;
  // topology.colocated: a rank of both modules is one process.
  bool colocated = true;

  // Whether ranks of the module exchange samples at all.
  bool exchanges() const { return delivery.moves() && dp > 1; }
};

// The module's layout. A count of 0, from an older server, is taken as 1.
ModuleLayout GetLayout(const v1::Job::ModuleSize& module);

// Errors: as GetRule; INVALID_ARGUMENT (the role's module or rank, or the
// place, does not exist; a size out of its range, naming the field, the value
// and the range; an alignment that context parallelism cannot divide).
absl::StatusOr<JobShape> GetShape(const v1::Job& job, const v1::Role& role,
                                  const TrainerPlace& place = {});

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

// A packed batch without the memory of its tensors, the same for host and
// device memory. n sequences: one for each sample, two for a preference pair.
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
  // With packing.dynamic_cp: the ranks that share the pack, and this rank's
  // number among them; else empty.
  std::vector<int64_t> pack_share;
  // In a job with an encoder, too: batches have ids and positions of the whole
  // pack. A placeholder's number among all of its sample's follows from them.
  bool whole_pack = false;
  // In packing order, which is the same on the paired ranks of the other
  // module. With placement `split` the two modules hold different samples.
  std::vector<PackedSample> samples;

  // Language.
  uint32_t position_axes = 0;  // 3 (MRoPE), 4 (HunyuanVL) or 1
  bool float_positions = false;
  int32_t max_seqlen = 0;  // longest padded length of a whole sample
  // Of whole samples, by sequences; empty if no text is received.
  TextLayout text;
  // For each sequence of `text`: 0 the chosen answer of a preference pair, 1
  // the rejected one, which follows it, -1 a sample of one sequence. Empty if
  // no sample of the micro-batch, on any rank, is a pair.
  std::vector<int32_t> pair;
  // Null: samples have no fields.
  std::shared_ptr<const FieldTable> field_table;
  // Each sequence is a separate row of max_seqlen tokens, and there are no
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
  // The last image belongs to no sample: one small crop, mid-grey; of audio the
  // last clip, all zeros. It lets a rank without images take part in the vision
  // tower's collectives (ModuleSchedule.dummy_rank). No token refers to it:
  // multiply the tower's output for it by zero instead of dropping it, so that
  // gradients flow on every rank. No totals count it.
  bool dummy_image = false;

  // Audio.
  ClipLayout clips;

  // For either module, with placement `split`: the same in both batches of a
  // process. Of modules on ranks of their own, each has its side.
  EmbeddingPlans embeddings;

  // The number of sequences of `text`, n.
  int64_t sequences() const {
    return text.cu_seqlens.empty() ? 0 : text.cu_seqlens.size() - 1;
  }

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
StepInfo GetStepInfo(v1::StepSchedule schedule, const SamplePadding& padding);

// The packed places of everything that a rank owns in one micro-batch. A
// language rank has `text`, a rank of audio `clips`, a rank of images the rest.
// A plain value.
struct BatchLayout {
  TextLayout text;
  ContextSlice context;       // the rank's part of `text`
  std::vector<int32_t> pair;  // BatchInfo::pair
  // The images of the plan's samples in packing order, without frames of
  // videos, then the dummy image.
  std::vector<ImageRecord> images;
  VisionLayout vision;
  CropLayout crops;
  VideoLayout videos;
  // The last image, or clip, belongs to no sample (PackedBatch::dummy_image).
  bool dummy_image = false;
  ClipLayout clips;
  // For ranks that receive pixels or input ids, with placement `split`.
  EmbeddingPlans embeddings;
};

// Pure. `micro_batch` is the schedule of `plan`'s micro-batch and has the
// role's module; it says whether the rank adds a dummy image, how long rows
// are, and which ranks share the rank's pack. Errors: INVALID_ARGUMENT (a pack
// that more ranks share than padding allows); as LayOutText, LayOutRows,
// LayOutVision, LayOutCrops, LayOutVideos and PlanEmbeddings.
absl::StatusOr<BatchLayout> LayOutBatch(
    const ExchangePlan& plan, const v1::MicroBatchSchedule& micro_batch,
    const v1::Role& role, const JobShape& shape);

// Fills `info` for micro-batch number `micro_batch` of `step`, from its plan
// and layout (empty if the rank receives no tensor). `has_block`: the rank
// pulls the micro-batch's block. Pure except for `info`, whose memory is
// reused. Leaves PackedSample::placeholder false.
void FillBatchInfo(const StepInfo& step, uint32_t micro_batch,
                   const v1::Role& role, const JobShape& shape,
                   PixelType pixel_type, const ExchangePlan& plan,
                   const BatchLayout& layout, bool has_block, BatchInfo* info);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BATCH_LAYOUT_H_
