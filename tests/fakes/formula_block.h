#ifndef BALLAST_TESTS_FAKES_FORMULA_BLOCK_H_
#define BALLAST_TESTS_FAKES_FORMULA_BLOCK_H_

#include <cstdint>

#include "common/aligned_buffer.h"
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

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FORMULA_BLOCK_H_
