#include "trainer_shim/batch_layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"

namespace ballast {
namespace {

absl::Status CheckGrids(absl::Span<const ImageRecord> images, uint32_t merge) {
  for (size_t i = 0; i < images.size(); ++i) {
    if (images[i].grid_h % merge == 0 && images[i].grid_w % merge == 0) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: image ", i, " of the packed shard has grid ",
                     images[i].grid_h, "x", images[i].grid_w,
                     ", wanted multiples of model.merge ", merge));
  }
  return absl::OkStatus();
}

}  // namespace

ImageRecord DummyImageOf(const PatchShape& shape) {
  ImageRecord dummy = {};
  dummy.grid_t = 1;
  dummy.grid_h = dummy.grid_w = shape.merge;
  dummy.height = dummy.width = shape.merge * shape.patch;
  return dummy;
}

absl::StatusOr<BatchLayout> LayOutBatch(
    const ExchangePlan& plan, const v1::MicroBatchSchedule& micro_batch,
    const v1::Role& role, const JobShape& shape) {
  BatchLayout layout;
  if (shape.split_placement &&
      (shape.fields.pixels || shape.fields.input_ids)) {
    BALLAST_RETURN_IF_ERROR(PlanEmbeddings(
        micro_batch, role.dp_rank(), shape.patch.merge, &layout.embeddings));
  }
  if (role.module() != v1::MODULE_VISION) {
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
  BALLAST_RETURN_IF_ERROR(CheckGrids(plan.images, shape.patch.merge));
  layout.images = plan.images;
  const auto& dummies = FindModule(micro_batch, role.module())->dummy_rank();
  layout.dummy_image = std::find(dummies.begin(), dummies.end(),
                                 role.dp_rank()) != dummies.end();
  if (layout.dummy_image) layout.images.push_back(DummyImageOf(shape.patch));
  BALLAST_ASSIGN_OR_RETURN(layout.vision, LayOutVision(layout.images));
  return layout;
}

}  // namespace ballast
