#ifndef BALLAST_TESTS_FAKES_FORMULA_BLOCK_H_
#define BALLAST_TESTS_FAKES_FORMULA_BLOCK_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "common/aligned_buffer.h"
#include "proto/block/block_layout.h"
#include "proto/block/block_plan.h"

namespace ballast {

// Blocks whose contents are formulas of their place, so that a misplaced value
// shows its origin.

int32_t FormulaId(uint64_t position, uint32_t token);
// The label of a token: -100 for every third one.
int32_t FormulaLabel(uint64_t position, uint32_t token);
int32_t FormulaPositionId(uint64_t position, uint32_t axis, uint32_t token);
// Channel `c` of the pixel at (y, x) of the sample's image number `image`,
// which is `grid_w` patches wide: the position, the image and the patch (in
// raster order), each modulo 256.
uint8_t FormulaPixel(uint64_t position, uint32_t image, uint32_t grid_w,
                     uint32_t patch, uint32_t y, uint32_t x, uint32_t c);

// The value of a clip's feature `bin` in row `row`. Exact, and its own, below
// position 256, 4 clips, 256 rows and 64 bins.
float FormulaFeature(uint64_t position, uint32_t clip, uint32_t row,
                     uint32_t bin);

// The block of `plan`, filled with these values.
AlignedBuffer FormulaBlock(const BlockPlan& plan,
                           const BlockGeometry& geometry);

// A block of `bytes` bytes (at least a header's) with a valid header and no
// sample, which is all that a stream of blocks looks at. Every byte after the
// header is `fill`.
inline std::vector<uint8_t> TinyBlock(uint64_t step, uint32_t micro_batch,
                                      uint32_t micro_batches, size_t bytes,
                                      uint8_t fill = 0) {
  BlockHeader header = {};
  header.magic = kBlockMagic;
  header.version = kBlockVersion;
  header.step = step;
  header.micro_batch = micro_batch;
  header.micro_batches = micro_batches;
  header.sample_table = header.image_table = header.payload = sizeof(header);
  header.total_bytes = bytes;
  std::vector<uint8_t> block(bytes, fill);
  std::memcpy(block.data(), &header, sizeof(header));
  return block;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FORMULA_BLOCK_H_
