#include <algorithm>
#include <cmath>
#include <cstdint>

#include "server/image_plan/stage_parts.h"
#include "server/image_plan/tile_rules.h"

namespace ballast {

ImagePlan PlanPinpoints(uint32_t height, uint32_t width,
                        const ImageFamily& family, const Canvases& canvases) {
  const double h = height;
  const double w = width;
  const TileShape best = canvases.Best(height, width);
  TileShape size = best;
  const double scale_w = best.width / w;
  const double scale_h = best.height / h;
  if (scale_w < scale_h) {
    size.height = std::min(Int(std::ceil(h * scale_w)), best.height);
  } else {
    size.width = std::min(Int(std::ceil(w * scale_h)), best.width);
  }
  ImagePlan plan;
  plan.stages.push_back(
      WholeStage(Whole(height, width), {family.tile, family.tile}));
  PlanStage tiles = WholeStage(Whole(height, width), size);
  tiles.place.top = (best.height - size.height) / 2;
  tiles.place.left = (best.width - size.width) / 2;
  tiles.height = best.height;
  tiles.width = best.width;
  Cut(family.tile, family.tile, tiles);
  plan.tile_rows = tiles.rows;
  plan.tile_columns = tiles.columns;
  plan.stages.push_back(tiles);
  return plan;
}

uint64_t PinpointTokens(uint32_t height, uint32_t width,
                        const ImageFamily& family, const ImagePlan& plan) {
  const uint32_t side = family.tile / family.patch;
  const uint64_t base = uint64_t{side} * side;
  uint64_t rows = uint64_t{side} * plan.tile_rows;
  uint64_t columns = uint64_t{side} * plan.tile_columns;
  // int(round(x, 7)): products that are whole but for their rounding count as
  // whole.
  constexpr double kHalfUnit = 5e-8;
  const double w = width;
  const double h = height;
  if (w / h > static_cast<double>(columns) / rows) {
    const uint64_t kept = Int(h * (columns / w) + kHalfUnit);
    rows -= (rows - kept) / 2 * 2;
  } else {
    const uint64_t kept = Int(w * (rows / h) + kHalfUnit);
    columns -= (columns - kept) / 2 * 2;
  }
  if (family.max_patches != 0) {
    const double ratio = std::sqrt(static_cast<double>(rows * columns) /
                                   (uint64_t{family.max_patches} * base));
    if (ratio > 1.1) {
      rows = static_cast<uint64_t>(rows / ratio);
      columns = static_cast<uint64_t>(columns / ratio);
    }
  }
  return base + rows * columns + rows;
}

}  // namespace ballast
