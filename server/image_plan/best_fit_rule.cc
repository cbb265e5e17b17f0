#include <algorithm>
#include <cmath>

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
  if (!scale.is_float) return Int(side * scale.value);
  return Int(static_cast<float>(side) * static_cast<float>(scale.value));
}

// The scale at which `tiles` tiles cover a side; the processor has it in a
// tensor of floats.
float CoverScale(uint32_t tiles, uint32_t tile, uint32_t side) {
  return static_cast<float>(tiles * tile) / static_cast<float>(side);
}

// The fewest tiles that cover a side at a scale of at least `scale`.
uint32_t FewestTiles(float scale, uint32_t tile, uint32_t side) {
  const double exact = static_cast<double>(scale) * side / tile;
  uint32_t tiles = std::max(1u, Int(exact));
  while (tiles > 1 && CoverScale(tiles - 1, tile, side) >= scale) --tiles;
  while (CoverScale(tiles, tile, side) < scale) ++tiles;
  return tiles;
}

// The grid of at most max_tiles tiles that enlarges the image least, or else
// shrinks it least; of several the one with fewest tiles. A grid's scale is the
// smaller of its sides', and each side's grows with its tiles.
TileShape BestGrid(uint32_t height, uint32_t width, const ImageFamily& family) {
  const uint32_t tile = family.tile;
  const uint32_t most = family.max_tiles;
  const TileShape enlarging = {FewestTiles(1, tile, height),
                               FewestTiles(1, tile, width)};
  if (uint64_t{enlarging.height} * enlarging.width <= most) return enlarging;
  const auto by_rows = [&](uint32_t rows) {
    return CoverScale(rows, tile, height);
  };
  // With as many columns as these rows leave.
  const auto by_columns = [&](uint32_t rows) {
    return CoverScale(most / rows, tile, width);
  };
  // From these rows on the columns that are left decide, before them the rows.
  auto rows = std::max(
      1u, Int(std::min<double>(
              most, std::sqrt(static_cast<double>(most) * height / width))));
  while (rows > 1 && by_rows(rows - 1) >= by_columns(rows - 1)) --rows;
  while (rows <= most && by_rows(rows) < by_columns(rows)) ++rows;
  float scale = rows <= most ? by_columns(rows) : 0;
  if (rows > 1) scale = std::max(scale, by_rows(rows - 1));
  return {FewestTiles(scale, tile, height), FewestTiles(scale, tile, width)};
}

}  // namespace

ImagePlan PlanBestFitTiles(uint32_t height, uint32_t width,
                           const ImageFamily& family) {
  const TileShape best = BestGrid(height, width, family);
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
