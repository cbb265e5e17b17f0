#include "proto/block/block_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/align.h"
#include "common/status_macros.h"
#include "proto/schedule/image_columns.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

absl::Status ParseFingerprint(const std::string& hash, uint64_t out[2]) {
  const absl::string_view digits = hash;
  if (digits.size() != 32 ||
      !absl::SimpleHexAtoi(digits.substr(0, 16), &out[0]) ||
      !absl::SimpleHexAtoi(digits.substr(16), &out[1])) {
    return absl::InvalidArgumentError(absl::StrCat(
        "schedule fingerprint \"", hash, "\" is not 32 hexadecimal digits"));
  }
  return absl::OkStatus();
}

}  // namespace

BlockGeometry GeometryOf(const v1::Job& job) {
  return {job.model().patch(), job.model().position_axes(),
          job.crop_shape().margin()};
}

absl::StatusOr<BlockPlan> PlanBlock(const v1::StepSchedule& schedule,
                                    uint32_t micro_batch, const v1::Role& role,
                                    const DeliveryRule& delivery,
                                    const BlockGeometry& geometry) {
  if (schedule.split() != role.split()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the schedule is of split ", SplitName(schedule.split()),
        "; a block of split ", SplitName(role.split()), " was asked for"));
  }
  if (micro_batch >= static_cast<uint32_t>(schedule.micro_batches_size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "step ", schedule.step(), " has ", schedule.micro_batches_size(),
        " micro-batches; number ", micro_batch, " was asked for"));
  }
  const v1::MicroBatchSchedule& columns = schedule.micro_batches(micro_batch);
  const v1::ModuleSchedule* module = FindModule(columns, role.module());
  if (module == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "module ", ModuleName(role.module()), " is not configured"));
  }
  if (role.dp_rank() >= static_cast<uint32_t>(module->load_after_size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        ModuleName(role.module()), " has ", module->load_after_size(),
        " data-parallel ranks; rank ", role.dp_rank(), " was asked for"));
  }
  if (!delivery.server_of_rank.empty() &&
      delivery.server_of_rank.size() != size_t(module->load_after_size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        ModuleName(role.module()), " has ", module->load_after_size(),
        " data-parallel ranks; the servers of ", delivery.server_of_rank.size(),
        " are known"));
  }

  BlockPlan plan;
  for (int i = 0; i < module->owner_size(); ++i) {
    if (delivery.PullerOf(module->reader(i), module->owner(i)) !=
        role.dp_rank()) {
      continue;
    }
    plan.samples.push_back({static_cast<uint32_t>(i), module->owner(i), {}});
  }
  std::sort(plan.samples.begin(), plan.samples.end(),
            [&](const PlannedSample& a, const PlannedSample& b) {
              return std::make_pair(a.owner, columns.place(a.index)) <
                     std::make_pair(b.owner, columns.place(b.index));
            });

  plan.header = {};
  plan.header.magic = kBlockMagic;
  plan.header.version = kBlockVersion;
  plan.header.module = static_cast<uint16_t>(role.module());
  BALLAST_RETURN_IF_ERROR(
      ParseFingerprint(schedule.fingerprint(), plan.header.fingerprint));
  plan.header.step = schedule.step();
  plan.header.micro_batch = micro_batch;
  plan.header.micro_batches = schedule.micro_batches_size();
  plan.header.dp_rank = role.dp_rank();
  plan.header.split = role.split();
  plan.header.num_samples = plan.samples.size();

  const Media media = GetMedia(role.module());
  const FirstEntries first = FirstEntriesOf(columns);
  for (PlannedSample& sample : plan.samples) {
    const uint32_t i = sample.index;
    SampleRecord& record = sample.record;
    record.position = columns.position(i);
    record.ordinal = columns.ordinal(i);
    record.source = columns.source(i);
    record.tokens = columns.tokens(i);
    record.label_tokens = columns.label_tokens(i);
    record.first_image = plan.images.size();
    const PayloadRow row = RowOf(columns, first, i);
    record.payload_bytes = PayloadBytes(row, media, geometry);
    if (media != Media::kImages) continue;
    record.num_images = row.grid_h.size();
    AppendCrops(row, geometry, &plan.images);
  }
  plan.header.num_images = plan.images.size();

  plan.header.sample_table = sizeof(BlockHeader);
  plan.header.image_table =
      plan.header.sample_table + plan.samples.size() * sizeof(SampleRecord);
  plan.header.payload = AlignUp(
      plan.header.image_table + plan.images.size() * sizeof(ImageRecord),
      kSampleAlignment);
  uint64_t offset = plan.header.payload;
  for (PlannedSample& sample : plan.samples) {
    sample.record.payload = offset;
    offset += sample.record.payload_bytes;
  }
  plan.header.total_bytes = offset;
  return plan;
}

}  // namespace ballast
