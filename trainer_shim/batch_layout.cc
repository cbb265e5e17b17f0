#include "trainer_shim/batch_layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
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

void FillBatchInfo(const StepInfo& step, uint32_t micro_batch,
                   const v1::Role& role, const JobShape& shape,
                   PixelType pixel_type, const ExchangePlan& plan,
                   const BatchLayout& layout, bool has_block, BatchInfo* info) {
  const v1::StepSchedule& schedule = *step.schedule;
  const v1::MicroBatchSchedule& columns = schedule.micro_batches(micro_batch);
  info->step = schedule.step();
  info->micro_batch = micro_batch;
  info->num_micro_batches = schedule.micro_batches_size();
  info->role = role;
  info->place = shape.place;
  info->fields = shape.fields;
  info->context = shape.context;
  info->samples.resize(plan.owned.size());
  for (size_t i = 0; i < plan.owned.size(); ++i) {
    const SampleRecord& record = plan.owned[i].expected;
    PackedSample& sample = info->samples[i];
    sample.position = record.position;
    sample.source = record.source;
    sample.ordinal = record.ordinal;
    sample.name.clear();
    absl::StrAppend(&sample.name, schedule.sources(record.source), ":",
                    record.ordinal);
    sample.placeholder = false;
  }
  info->position_axes = shape.block.position_axes;
  info->max_seqlen = layout.text.max_seqlen;
  info->text = layout.text;
  info->padded = shape.padding.rows && shape.fields.positions;
  info->pixel_type = pixel_type;
  info->vision = layout.vision;
  info->crops = layout.crops;
  info->videos = layout.videos;
  info->vision_max_seqlen =
      std::max(layout.vision.max_seqlen, layout.videos.vision.max_seqlen);
  info->dummy_image = layout.dummy_image;
  info->embeddings = layout.embeddings;
  info->totals = SumTotals(columns, shape.padding, role);
  info->micro_batch_totals = SumTotals(columns, shape.padding);
  info->step_totals = step.totals;
  info->bytes_read = has_block ? plan.block.bytes() : 0;
  info->bytes_moved = has_block ? plan.bytes_sent() : 0;
  info->schedule = step.schedule;
  info->table = shape.tensors;
  LayOutTensors(info);
}

}  // namespace ballast
