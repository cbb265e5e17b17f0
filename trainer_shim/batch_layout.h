#ifndef BALLAST_TRAINER_SHIM_BATCH_LAYOUT_H_
#define BALLAST_TRAINER_SHIM_BATCH_LAYOUT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "proto/block/block_layout.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/batch_info.h"
#include "trainer_shim/crop_layout.h"
#include "trainer_shim/embedding_plan.h"
#include "trainer_shim/exchange_plan.h"
#include "trainer_shim/job_shape.h"
#include "trainer_shim/thd_layout.h"
#include "trainer_shim/video_layout.h"

namespace ballast {

// The packed places of everything that a rank owns in one micro-batch. A
// language rank has `text`, a rank of images the rest. A plain value.
struct BatchLayout {
  TextLayout text;
  // The images of the plan's samples in packing order, without frames of
  // videos, then the dummy image.
  std::vector<ImageRecord> images;
  VisionLayout vision;
  CropLayout crops;
  VideoLayout videos;
  // The last image belongs to no sample (PackedBatch::dummy_image).
  bool dummy_image = false;
  // Of ranks that receive pixels or input ids, with placement `split`.
  EmbeddingPlan embeddings;
};

// Pure. `micro_batch` is the schedule of `plan`'s micro-batch and has the
// role's module; it says whether the rank adds a dummy image, and how long rows
// are. Errors: as LayOutText, LayOutRows, LayOutVision, LayOutCrops,
// LayOutVideos and PlanEmbeddings.
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
