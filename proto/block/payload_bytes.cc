#include "proto/block/payload_bytes.h"

#include "common/align.h"
#include "proto/schedule/image_columns.h"

namespace ballast {

ImageRecord ImageOf(const PayloadRow& row, size_t image, uint64_t offset,
                    uint32_t patch) {
  ImageRecord record = {};
  record.data = offset;
  record.grid_t = 1;
  record.grid_h = row.grid_h[image];
  record.grid_w = row.grid_w[image];
  record.height = record.grid_h * patch;
  record.width = record.grid_w * patch;
  if (!row.encoded_bytes.empty()) {
    record.encoded_bytes = row.encoded_bytes[image];
  }
  return record;
}

uint64_t NextImageOffset(const ImageRecord& image) {
  return AlignUp(image.data + ImageBytes(image), kImageAlignment);
}

PayloadRow RowOf(const v1::MicroBatchSchedule& micro_batch,
                 const std::vector<uint32_t>& first_images, uint32_t sample) {
  const uint32_t first = first_images[sample];
  const uint32_t images = first_images[sample + 1] - first;
  PayloadRow row = {micro_batch.tokens(sample),
                    {micro_batch.grid_h().data() + first, images},
                    {micro_batch.grid_w().data() + first, images},
                    {}};
  if (!micro_batch.encoded_bytes().empty()) {
    row.encoded_bytes = {micro_batch.encoded_bytes().data() + first, images};
  }
  return row;
}

uint64_t PayloadBytes(const PayloadRow& row, v1::Module module,
                      const BlockGeometry& geometry) {
  if (module == v1::MODULE_LANGUAGE) {
    return LayOutLanguage(row.tokens, geometry.position_axes).bytes;
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < row.grid_h.size(); ++i) {
    bytes = NextImageOffset(ImageOf(row, i, bytes, geometry.patch));
  }
  return AlignUp(bytes, kSampleAlignment);
}

std::vector<uint64_t> PayloadBytes(const v1::MicroBatchSchedule& micro_batch,
                                   v1::Module module,
                                   const BlockGeometry& geometry) {
  const std::vector<uint32_t> first = FirstImages(micro_batch);
  std::vector<uint64_t> bytes;
  bytes.reserve(micro_batch.tokens_size());
  for (int i = 0; i < micro_batch.tokens_size(); ++i) {
    bytes.push_back(
        PayloadBytes(RowOf(micro_batch, first, i), module, geometry));
  }
  return bytes;
}

}  // namespace ballast
