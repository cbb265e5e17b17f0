#include "proto/block/block_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"
#include "proto/schedule/split.h"

namespace ballast {

namespace {

// The size of crop `crop`; its place is left 0.
ImageRecord MakeRecord(const PayloadRow& row, size_t crop,
                       const BlockGeometry& geometry) {
  ImageRecord record = {};
  record.grid_t = 1;
  record.grid_h = row.grid_h[crop];
  record.grid_w = row.grid_w[crop];
  record.height = record.grid_h * geometry.patch + geometry.margin;
  record.width = record.grid_w * geometry.patch + geometry.margin;
  if (!row.encoded_bytes.empty()) {
    record.encoded_bytes = row.encoded_bytes[crop];
  }
  return record;
}

// The offset within a payload of images after `crop`; the next one begins
// there.
uint64_t OffsetAfter(const ImageRecord& crop) {
  return AlignUp(crop.data + ImageBytes(crop), kImageAlignment);
}

template <typename Entry>
absl::Span<const Entry> GetPart(
    const google::protobuf::RepeatedField<Entry>& column, uint32_t first,
    uint32_t count) {
  if (column.empty()) return {};
  return {column.data() + first, count};
}

}  // namespace

void AppendCrops(const PayloadRow& row, const BlockGeometry& geometry,
                 std::vector<ImageRecord>* crops) {
  uint64_t offset = 0;
  uint32_t image = 0;
  uint32_t left = 0;  // crops of `image`
  for (size_t i = 0; i < row.grid_h.size(); ++i) {
    if (left == 0) {
      image = i == 0 ? 0 : image + 1;
      left = row.crops.empty() ? 1 : row.crops[image];
    }
    --left;
    ImageRecord record = MakeRecord(row, i, geometry);
    record.data = offset;
    record.image = image;
    if (!row.image_height.empty()) {
      record.image_height = row.image_height[image];
      record.image_width = row.image_width[image];
    }
    // Without seconds, the frames of a video are crops like an image's.
    if (!row.grid_t.empty() && row.seconds_per_patch[image] > 0) {
      record.grid_t = row.grid_t[image];
      record.seconds_per_patch = row.seconds_per_patch[image];
    }
    offset = OffsetAfter(record);
    crops->push_back(record);
  }
}

void AppendClips(const PayloadRow& row, const BlockGeometry& geometry,
                 std::vector<ImageRecord>* clips) {
  uint64_t offset = 0;
  for (size_t i = 0; i < row.clip_rows.size(); ++i) {
    ImageRecord& record = clips->emplace_back();
    record.data = offset;
    record.grid_t = row.clip_frames[i];
    record.grid_h = row.clip_rows[i];
    record.grid_w = geometry.clip_width;
    record.encoded_bytes = record.grid_h * record.grid_w * sizeof(float);
    record.image = static_cast<uint32_t>(i);
    offset = OffsetAfter(record);
  }
}

PayloadRow GetRow(const v1::MicroBatchSchedule& micro_batch,
                  const FirstEntries& first, uint32_t sample) {
  const uint32_t crop = first.crop[sample];
  const uint32_t crops = first.crop[sample + 1] - crop;
  const uint32_t image = first.image[sample];
  const uint32_t images = first.image[sample + 1] - image;
  PayloadRow row;
  row.tokens = micro_batch.tokens(sample);
  row.first_tokens = FirstTokens(micro_batch, sample);
  row.grid_h = GetPart(micro_batch.grid_h(), crop, crops);
  row.grid_w = GetPart(micro_batch.grid_w(), crop, crops);
  row.encoded_bytes = GetPart(micro_batch.encoded_bytes(), crop, crops);
  row.crops = GetPart(micro_batch.crops(), image, images);
  row.image_height = GetPart(micro_batch.image_height(), image, images);
  row.image_width = GetPart(micro_batch.image_width(), image, images);
  row.grid_t = GetPart(micro_batch.grid_t(), image, images);
  row.seconds_per_patch =
      GetPart(micro_batch.seconds_per_patch(), image, images);
  const uint32_t clip = first.clip[sample];
  const uint32_t clips = first.clip[sample + 1] - clip;
  row.clip_rows = GetPart(micro_batch.clip_rows(), clip, clips);
  row.clip_frames = GetPart(micro_batch.clip_frames(), clip, clips);
  return row;
}

uint64_t PayloadBytes(const PayloadRow& row, Media media,
                      const BlockGeometry& geometry) {
  switch (media) {
    case Media::kNone:
      return 0;
    case Media::kText: {
      uint64_t bytes = 0;
      ForEachSequence(row.tokens, row.first_tokens, [&](uint32_t tokens) {
        bytes += LayOutLanguage(tokens, geometry.position_axes, geometry.fields)
                     .bytes;
      });
      return bytes;
    }
    case Media::kRows: {
      uint64_t bytes = 0;
      for (const uint32_t rows : row.clip_rows) {
        bytes += AlignUp(uint64_t{rows} * geometry.clip_width * sizeof(float),
                         kImageAlignment);
      }
      return AlignUp(bytes, kSampleAlignment);
    }
    case Media::kImages:
      break;
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < row.grid_h.size(); ++i) {
    ImageRecord record = MakeRecord(row, i, geometry);
    record.data = bytes;
    bytes = OffsetAfter(record);
  }
  return AlignUp(bytes, kSampleAlignment);
}

std::vector<uint64_t> PayloadBytes(const v1::MicroBatchSchedule& micro_batch,
                                   Media media, const BlockGeometry& geometry) {
  const FirstEntries first = GetFirstEntries(micro_batch);
  std::vector<uint64_t> bytes;
  bytes.reserve(micro_batch.tokens_size());
  for (int i = 0; i < micro_batch.tokens_size(); ++i) {
    bytes.push_back(
        PayloadBytes(GetRow(micro_batch, first, i), media, geometry));
  }
  return bytes;
}

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

std::vector<FieldPlace> PlaceFields(
    const google::protobuf::RepeatedPtrField<v1::Job::Field>& fields,
    FieldCounts* counts) {
  *counts = {};
  std::vector<FieldPlace> places;
  for (const v1::Job::Field& field : fields) {
    const bool per_token = field.per() != v1::Source::Field::PER_SAMPLE;
    places.push_back(
        {per_token, per_token ? counts->per_token++ : counts->per_sample++});
  }
  return places;
}

BlockGeometry GetGeometry(const v1::Job& job) {
  BlockGeometry geometry = {job.model().patch(), job.model().position_axes(),
                            job.crop_shape().margin()};
  PlaceFields(job.fields(), &geometry.fields);
  geometry.clip_width = job.clip_shape().width();
  geometry.float_positions = job.float_positions();
  return geometry;
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
    // Each rank that shares the sample's pack gets it whole.
    for (uint32_t k = 0; k < PackRanks(*module, i); ++k) {
      const uint32_t owner = module->owner(i) + k;
      if (delivery.GetPuller(module->reader(i), owner) == role.dp_rank()) {
        plan.samples.push_back({static_cast<uint32_t>(i), owner, {}});
      }
    }
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
  if (media == Media::kText && geometry.fields.all() > 0) {
    plan.header.version = kBlockVersionWithFields;
    plan.header.fields_per_token = geometry.fields.per_token;
    plan.header.fields_per_sample = geometry.fields.per_sample;
  }
  const FirstEntries first = GetFirstEntries(columns);
  for (PlannedSample& sample : plan.samples) {
    const uint32_t i = sample.index;
    SampleRecord& record = sample.record;
    record.position = columns.position(i);
    record.ordinal = columns.ordinal(i);
    record.source = columns.source(i);
    record.tokens = columns.tokens(i);
    record.first_tokens = FirstTokens(columns, i);
    if (record.first_tokens != 0) plan.header.version = kBlockVersionWithPairs;
    record.label_tokens = columns.label_tokens(i);
    record.first_image = plan.images.size();
    const PayloadRow row = GetRow(columns, first, i);
    record.payload_bytes = PayloadBytes(row, media, geometry);
    if (media == Media::kText) continue;
    if (media == Media::kRows) {
      AppendClips(row, geometry, &plan.images);
    } else {
      AppendCrops(row, geometry, &plan.images);
    }
    record.num_images = plan.images.size() - record.first_image;
  }
  plan.header.num_images = plan.images.size();
  if (media == Media::kText && geometry.float_positions) {
    plan.header.version = kBlockVersionWithFloats;
  }

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
