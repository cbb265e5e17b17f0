#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "server/image_plan/stage_parts.h"
#include "server/image_plan/tile_rules.h"

namespace ballast {
ImagePlan PlanPinpoints(uint32_t height, uint32_t width,
                        const ImageFamily& family) {
  const double h = height;
  const double w = width;
  // In whole pixels, which doubles hold exactly: integers are chosen among
  // without a branch.
  const int64_t whole = int64_t{height} * width;
  int64_t most_effective = 0;
  int64_t least_wasted = std::numeric_limits<int64_t>::max();
  size_t best_index = 0;
  uint32_t last_height = 0;
  double scale_of_height = 0;
  for (size_t i = 0; i < family.canvases.size(); ++i) {
    const TileShape& canvas = family.canvases[i];
    // Lists go through the widths of one height.
    if (canvas.height != last_height) {
      last_height = canvas.height;
      scale_of_height = canvas.height / h;
    }
    const double scale = std::min(canvas.width / w, scale_of_height);
    const int64_t effective = std::min(
        static_cast<int64_t>(w * scale) * static_cast<int64_t>(h * scale),
        whole);
    const int64_t wasted = int64_t{canvas.width} * canvas.height - effective;
    const bool is_better =
        (effective > most_effective) |
        ((effective == most_effective) & (wasted < least_wasted));
    most_effective = is_better ? effective : most_effective;
    least_wasted = is_better ? wasted : least_wasted;
    best_index = is_better ? i : best_index;
  }
  const TileShape best = family.canvases[best_index];
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
      rows = static_cast<uint64_t>(std::floor(rows / ratio));
      columns = static_cast<uint64_t>(std::floor(columns / ratio));
    }
  }
  return base + rows * columns + rows;
}

}  // namespace ballast
