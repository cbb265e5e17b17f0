#include "proto/block/payload_bytes.h"

#include "common/align.h"

namespace ballast {
namespace {

// The size of crop `crop`; its place is left 0.
ImageRecord SizeOf(const PayloadRow& row, size_t crop,
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
absl::Span<const Entry> PartOf(
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
    ImageRecord record = SizeOf(row, i, geometry);
    record.data = offset;
    record.image = image;
    if (!row.image_height.empty()) {
      record.image_height = row.image_height[image];
      record.image_width = row.image_width[image];
    }
    // Without seconds the frames of a video are crops as an image's are.
    if (!row.grid_t.empty() && row.seconds_per_patch[image] > 0) {
      record.grid_t = row.grid_t[image];
      record.seconds_per_patch = row.seconds_per_patch[image];
    }
    offset = OffsetAfter(record);
    crops->push_back(record);
  }
}

PayloadRow RowOf(const v1::MicroBatchSchedule& micro_batch,
                 const FirstEntries& first, uint32_t sample) {
  const uint32_t crop = first.crop[sample];
  const uint32_t crops = first.crop[sample + 1] - crop;
  const uint32_t image = first.image[sample];
  const uint32_t images = first.image[sample + 1] - image;
  PayloadRow row;
  row.tokens = micro_batch.tokens(sample);
  row.grid_h = PartOf(micro_batch.grid_h(), crop, crops);
  row.grid_w = PartOf(micro_batch.grid_w(), crop, crops);
  row.encoded_bytes = PartOf(micro_batch.encoded_bytes(), crop, crops);
  row.crops = PartOf(micro_batch.crops(), image, images);
  row.image_height = PartOf(micro_batch.image_height(), image, images);
  row.image_width = PartOf(micro_batch.image_width(), image, images);
  row.grid_t = PartOf(micro_batch.grid_t(), image, images);
  row.seconds_per_patch =
      PartOf(micro_batch.seconds_per_patch(), image, images);
  return row;
}

uint64_t PayloadBytes(const PayloadRow& row, Media media,
                      const BlockGeometry& geometry) {
  switch (media) {
    case Media::kNone:
      return 0;
    case Media::kText:
      return LayOutLanguage(row.tokens, geometry.position_axes).bytes;
    case Media::kImages:
      break;
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < row.grid_h.size(); ++i) {
    ImageRecord record = SizeOf(row, i, geometry);
    record.data = bytes;
    bytes = OffsetAfter(record);
  }
  return AlignUp(bytes, kSampleAlignment);
}

std::vector<uint64_t> PayloadBytes(const v1::MicroBatchSchedule& micro_batch,
                                   Media media, const BlockGeometry& geometry) {
  const FirstEntries first = FirstEntriesOf(micro_batch);
  std::vector<uint64_t> bytes;
  bytes.reserve(micro_batch.tokens_size());
  for (int i = 0; i < micro_batch.tokens_size(); ++i) {
    bytes.push_back(
        PayloadBytes(RowOf(micro_batch, first, i), media, geometry));
  }
  return bytes;
}

}  // namespace ballast
