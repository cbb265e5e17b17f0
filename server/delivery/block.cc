#include "server/delivery/block.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "proto/block/block_view.h"
#include "proto/schedule/schedule_table.h"
#include "server/files/span_checksum.h"

namespace ballast {

absl::StatusOr<PlannedBlock> PlanForBuilding(const v1::StepSchedule& schedule,
                                             uint32_t micro_batch,
                                             const v1::Role& role,
                                             const DeliveryRule& delivery,
                                             const BlockGeometry& geometry) {
  PlannedBlock planned;
  BALLAST_ASSIGN_OR_RETURN(
      planned.plan, PlanBlock(schedule, micro_batch, role, delivery, geometry));
  const v1::MicroBatchSchedule& columns = schedule.micro_batches(micro_batch);
  const FirstEntries first = GetFirstEntries(columns);
  const std::vector<uint32_t>& first_image = first.crop;
  planned.first_grid.push_back(0);
  planned.first_clip.push_back(0);
  for (const PlannedSample& sample : planned.plan.samples) {
    for (uint32_t k = first_image[sample.index];
         k < first_image[sample.index + 1]; ++k) {
      ImageGrid grid;
      grid.grid_h = columns.grid_h(k);
      grid.grid_w = columns.grid_w(k);
      grid.height = grid.grid_h * geometry.patch + geometry.margin;
      grid.width = grid.grid_w * geometry.patch + geometry.margin;
      planned.grids.push_back(grid);
      planned.encoded_bytes.push_back(EncodedBytes(columns, k));
    }
    planned.first_grid.push_back(planned.grids.size());
    planned.clip_rows.insert(
        planned.clip_rows.end(),
        columns.clip_rows().begin() + first.clip[sample.index],
        columns.clip_rows().begin() + first.clip[sample.index + 1]);
    planned.first_clip.push_back(planned.clip_rows.size());
  }
  return planned;
}

SampleRequest GetRequest(const PlannedBlock& planned, uint32_t item,
                         absl::Span<uint8_t> payload) {
  SampleRequest request;
  request.module = static_cast<v1::Module>(planned.plan.header.module);
  request.split = static_cast<v1::Split>(planned.plan.header.split);
  request.step = planned.plan.header.step;
  request.record = planned.plan.samples[item].record;
  const uint32_t first = planned.first_grid[item];
  const uint32_t images = planned.first_grid[item + 1] - first;
  request.grids = absl::MakeConstSpan(planned.grids).subspan(first, images);
  request.encoded_bytes =
      absl::MakeConstSpan(planned.encoded_bytes).subspan(first, images);
  request.clip_rows =
      absl::MakeConstSpan(planned.clip_rows)
          .subspan(planned.first_clip[item],
                   planned.first_clip[item + 1] - planned.first_clip[item]);
  request.images =
      absl::MakeConstSpan(planned.plan.images)
          .subspan(request.record.first_image, request.record.num_images);
  request.payload = payload;
  return request;
}

uint64_t BlockChecksum(absl::Span<const uint8_t> block) {
  return SpanChecksum(absl::string_view(
      reinterpret_cast<const char*>(block.data()), block.size()));
}

BlockBuild::BlockBuild(PlannedBlock planned, const SampleBuilder* builder,
                       absl::Span<uint8_t> memory, bool wants_checksum,
                       Finished finished)
    : planned_(std::move(planned)),
      builder_(builder),
      memory_(memory),
      wants_checksum_(wants_checksum),
      finished_(std::move(finished)),
      remaining_(planned_.plan.samples.size()) {}

bool BlockBuild::Start() {
  WriteBlockTables(planned_.plan, memory_);
  if (items() != 0) return true;
  Finish();
  return false;
}

void BlockBuild::Run(uint32_t item) {
  if (!failed_.load(std::memory_order_relaxed)) {
    absl::Status status = BuildSample(item);
    if (!status.ok()) Fail(std::move(status));
  }
  // The last item to end sees what all others wrote.
  if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) Finish();
}

void BlockBuild::Cancel() { Fail(absl::CancelledError("no longer wanted")); }

void BlockBuild::Fail(absl::Status status) {
  MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = std::move(status);
  failed_.store(true, std::memory_order_relaxed);
}

absl::Status BlockBuild::BuildSample(uint32_t item) {
  const BlockPlan& plan = planned_.plan;
  const SampleRecord& record = plan.samples[item].record;
  const SampleRequest request = GetRequest(
      planned_, item, memory_.subspan(record.payload, record.payload_bytes));
  const absl::StatusOr<SampleOutcome> outcome = builder_->Build(request);
  if (!outcome.ok()) {
    return Annotate(outcome.status(),
                    absl::StrCat("step ", plan.header.step, " micro-batch ",
                                 plan.header.micro_batch, " position ",
                                 request.record.position));
  }
  if (*outcome == SampleOutcome::kPlaceholder) {
    MarkPlaceholder(plan, item, memory_);
  }
  return absl::OkStatus();
}

void BlockBuild::Finish() {
  absl::Status failure;
  {
    MutexLock lock(&mutex_);
    failure = failure_;
  }
  if (!failure.ok()) {
    finished_(std::move(failure));
    return;
  }
  finished_(wants_checksum_ ? std::make_optional(BlockChecksum(memory_))
                            : std::nullopt);
}

}  // namespace ballast
