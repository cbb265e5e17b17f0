#include "proto/block/payload_bytes.h"

#include <cstddef>

#include "common/align.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/image_columns.h"

namespace ballast {

uint64_t NextImageOffset(uint64_t offset, uint32_t grid_h, uint32_t grid_w,
                         uint32_t patch) {
  const uint64_t pixels = uint64_t{grid_h} * patch * grid_w * patch;
  return AlignUp(offset + 3 * pixels, kPixelAlignment);
}

PayloadRow RowOf(const v1::MicroBatchSchedule& micro_batch,
                 const std::vector<uint32_t>& first_images, uint32_t sample) {
  const uint32_t first = first_images[sample];
  const uint32_t images = first_images[sample + 1] - first;
  return {micro_batch.tokens(sample),
          {micro_batch.grid_h().data() + first, images},
          {micro_batch.grid_w().data() + first, images}};
}

uint64_t PayloadBytes(const PayloadRow& row, v1::Module module,
                      const BlockGeometry& geometry) {
  if (module == v1::MODULE_LANGUAGE) {
    return LayOutLanguage(row.tokens, geometry.position_axes).bytes;
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < row.grid_h.size(); ++i) {
    bytes =
        NextImageOffset(bytes, row.grid_h[i], row.grid_w[i], geometry.patch);
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
