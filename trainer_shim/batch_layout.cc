#include "trainer_shim/batch_layout.h"

#include <algorithm>

#include "common/status_macros.h"
#include "proto/schedule/module.h"

namespace ballast {
absl::StatusOr<BatchLayout> LayOutBatch(
    const ExchangePlan& plan, const v1::MicroBatchSchedule& micro_batch,
    const v1::Role& role, const JobShape& shape) {
  BatchLayout layout;
  if (shape.split_placement &&
      (shape.fields.pixels || shape.fields.input_ids)) {
    BALLAST_RETURN_IF_ERROR(PlanEmbeddings(micro_batch, role.dp_rank(),
                                           shape.merge, &layout.embeddings));
  }
  if (IsLanguage(role.module())) {
    std::vector<uint32_t> lengths;
    for (const OwnedSample& owned : plan.owned) {
      lengths.push_back(owned.expected.tokens);
    }
    BALLAST_ASSIGN_OR_RETURN(
        layout.text,
        shape.padding.rows
            ? LayOutRows(lengths, RowLength(micro_batch, shape.padding))
            : LayOutText(lengths, shape.align));
    return layout;
  }
  for (const ImageRecord& record : plan.images) {
    if (!IsFrame(record)) layout.images.push_back(record);
  }
  const auto& dummies = FindModule(micro_batch, role.module())->dummy_rank();
  layout.dummy_image = std::find(dummies.begin(), dummies.end(),
                                 role.dp_rank()) != dummies.end();
  if (layout.dummy_image) layout.images.push_back(DummyImageOf(shape.crops));
  BALLAST_ASSIGN_OR_RETURN(layout.vision, LayOutVision(layout.images));
  BALLAST_ASSIGN_OR_RETURN(layout.crops,
                           LayOutCrops(layout.images, shape.crops));
  BALLAST_ASSIGN_OR_RETURN(layout.videos,
                           LayOutVideos(plan.images, shape.crops));
  return layout;
}

}  // namespace ballast
