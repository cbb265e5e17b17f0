#include "trainer_shim/batch_info.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ballast {

StepInfo StepInfoOf(v1::StepSchedule schedule, const SamplePadding& padding) {
  StepInfo step;
  for (const v1::MicroBatchSchedule& each : schedule.micro_batches()) {
    step.totals += SumTotals(each, padding);
  }
  step.schedule = std::make_shared<v1::StepSchedule>(std::move(schedule));
  return step;
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
  info->padded = shape.padding.rows && shape.fields.positions;
  info->pixel_type = pixel_type;
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
}

}  // namespace ballast
