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
#include "proto/schedule/module.h"
#include "trainer_shim/batch_info.h"
#include "trainer_shim/exchange_plan.h"

namespace ballast {

// Errors: INVALID_ARGUMENT (over kMaxFields; a name twice or empty; a type or
// `per` that this release does not know).
absl::StatusOr<std::shared_ptr<const FieldTable>> MakeFieldTable(
    const v1::Job& job);

// The tensors of the fields, for the table of a job.
TensorTable GetFieldRows(const FieldTable& fields);

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
