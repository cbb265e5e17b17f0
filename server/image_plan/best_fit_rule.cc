#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "server/image_plan/stage_parts.h"
#include "server/image_plan/tile_rules.h"

namespace ballast {
namespace {

// Two ratios are compared as PyTorch compares a float32 tensor with a number.
struct Scale {
  double value = 0;  // rounded to a float if is_float
  bool is_float = false;
};

// target / original, in floats where the processor has a tensor as target.
Scale ScaleOf(uint32_t target, uint32_t original, bool is_float) {
  if (is_float) {
    return {static_cast<float>(target) / static_cast<float>(original), true};
  }
  return {static_cast<double>(target) / original, false};
}

uint32_t FloorProduct(uint32_t side, const Scale& scale) {
  if (!scale.is_float) return Int(std::floor(side * scale.value));
  return Int(
      std::floor(static_cast<float>(side) * static_cast<float>(scale.value)));
}

}  // namespace

std::vector<TileShape> BestFitGrids(const ImageFamily& family) {
  // Grids of one shape stand together, in the order of the first of each.
  std::vector<std::pair<double, std::vector<TileShape>>> shapes;
  for (uint32_t tiles = family.max_tiles; tiles > 0; --tiles) {
    for (uint32_t rows = 1; rows <= tiles; ++rows) {
      if (tiles % rows != 0) continue;
      const TileShape grid = {rows, tiles / rows};
      const double ratio = static_cast<double>(grid.height) / grid.width;
      auto found =
          std::find_if(shapes.begin(), shapes.end(),
                       [ratio](const auto& s) { return s.first == ratio; });
      if (found == shapes.end()) {
        found = shapes.insert(shapes.end(), {ratio, {}});
      }
      found->second.push_back(grid);
    }
  }
  std::vector<TileShape> grids;
  for (const auto& [ratio, same] : shapes) {
    grids.insert(grids.end(), same.begin(), same.end());
  }
  return grids;
}

ImagePlan PlanBestFitTiles(uint32_t height, uint32_t width,
                           const ImageFamily& family,
                           absl::Span<const TileShape> grids) {
  // The processor has these scales in a tensor of floats: those of n tiles.
  std::array<float, kMaxFamilyTiles + 1> scale_of_columns;
  std::array<float, kMaxFamilyTiles + 1> scale_of_rows;
  for (uint32_t n = 1; n <= family.max_tiles; ++n) {
    const auto length = static_cast<float>(n * family.tile);
    scale_of_columns[n] = length / static_cast<float>(width);
    scale_of_rows[n] = length / static_cast<float>(height);
  }
  const auto scale_to = [&](const TileShape& grid) {
    return std::min(scale_of_columns[grid.width], scale_of_rows[grid.height]);
  };
  // The least scale of 1 or more, else the largest.
  float enlarging = std::numeric_limits<float>::infinity();
  float shrinking = 0;
  for (const TileShape& grid : grids) {
    const float scale = scale_to(grid);
    const bool enlarges = scale >= 1;
    enlarging = std::min(enlarging, enlarges ? scale : enlarging);
    shrinking = std::max(shrinking, enlarges ? shrinking : scale);
  }
  const bool enlarges = enlarging < std::numeric_limits<float>::infinity();
  const float chosen = enlarges ? enlarging : shrinking;
  TileShape best = {0, 0};
  for (const TileShape& grid : grids) {
    if (scale_to(grid) == chosen &&
        (best.height == 0 ||
         grid.height * grid.width < best.height * best.width)) {
      best = grid;
    }
  }
  const TileShape canvas = {best.height * family.tile,
                            best.width * family.tile};
  // Images under a tile are enlarged to it; others are never enlarged.
  const uint32_t free_h = std::max(height, family.tile);
  const uint32_t free_w = std::max(width, family.tile);
  const TileShape target = {std::min(free_h, canvas.height),
                            std::min(free_w, canvas.width)};
  const Scale scale_w = ScaleOf(target.width, width, canvas.width < free_w);
  const Scale scale_h = ScaleOf(target.height, height, canvas.height < free_h);
  const bool in_floats = scale_w.is_float || scale_h.is_float;
  const bool by_width = in_floats ? static_cast<float>(scale_w.value) <
                                        static_cast<float>(scale_h.value)
                                  : scale_w.value < scale_h.value;
  TileShape size = target;
  if (by_width) {
    size.height = std::min(FloorProduct(height, scale_w), target.height);
  } else {
    size.width = std::min(FloorProduct(width, scale_h), target.width);
  }
  size = {std::max(1u, size.height), std::max(1u, size.width)};

  PlanStage tiles = WholeStage(Whole(height, width), size);
  tiles.height = canvas.height;
  tiles.width = canvas.width;
  return TilesAndThumbnail(tiles, family.tile);
}

}  // namespace ballast
