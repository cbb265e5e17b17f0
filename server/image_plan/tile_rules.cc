#include "server/image_plan/tile_rules.h"

#include <algorithm>

#include "server/image_plan/stage_parts.h"

namespace ballast {
namespace {

// The crops of an image much longer than wide: how many, or 0.
uint32_t PanCrops(uint32_t longer, uint32_t shorter,
                  const ImageFamily& family) {
  const double ratio = static_cast<double>(longer) / shorter;
  if (ratio < family.min_ratio) return 0;
  uint32_t crops = Int(ratio + 0.5);
  crops = std::min(longer / family.min_crop, crops);
  crops = std::min(family.max_tiles, std::max(2u, crops));
  const uint32_t side = (longer + crops - 1) / crops;
  return std::min(side, shorter) < family.min_crop ? 0 : crops;
}

}  // namespace

ImagePlan PlanFixedSize(uint32_t height, uint32_t width,
                        const ImageFamily& family) {
  ImagePlan plan;
  const TileShape size = {family.tile, family.tile};
  plan.stages.push_back(WholeStage(Whole(height, width), size));
  if (family.max_tiles < 2) return plan;
  const bool wide = width >= height;
  const uint32_t longer = wide ? width : height;
  const uint32_t crops = PanCrops(longer, wide ? height : width, family);
  if (crops == 0) return plan;
  const uint32_t side = (longer + crops - 1) / crops;
  for (uint32_t i = 0; i < crops; ++i) {
    const uint32_t start = std::min(i * side, longer - 1);
    const uint32_t length = std::min(side, longer - start);
    plan.stages.push_back(WholeStage(wide ? PixelRect{0, start, height, length}
                                          : PixelRect{start, 0, length, width},
                                     size));
  }
  plan.tile_rows = wide ? 1 : crops;
  plan.tile_columns = wide ? crops : 1;
  return plan;
}

ImagePlan PlanCenterCrop(uint32_t height, uint32_t width,
                         const ImageFamily& family) {
  const uint32_t tile = family.tile;
  const bool tall = width <= height;
  const double shorter = tall ? width : height;
  const double longer = tall ? height : width;
  const uint32_t new_longer = Int(tile * longer / shorter);
  const TileShape size =
      tall ? TileShape{new_longer, tile} : TileShape{tile, new_longer};
  ImagePlan plan;
  plan.stages.push_back(WholeStage(Whole(height, width), size));
  plan.stages[0].crop = {(size.height - tile) / 2, (size.width - tile) / 2,
                         tile, tile};
  return plan;
}

ImagePlan PlanPadSquare(uint32_t height, uint32_t width,
                        const ImageFamily& family) {
  ImagePlan plan;
  const uint32_t side = std::max(height, width);
  const TileShape size = {family.tile, family.tile};
  if (height != width) {
    PlanStage square;
    square.from = Whole(height, width);
    square.place = {(side - height) / 2, (side - width) / 2, height, width};
    square.height = square.width = side;
    square.background = family.background;
    plan.stages.push_back(square);
  }
  PlanStage last = WholeStage(Whole(side, side), size);
  if (height != width) last.source = 0;
  plan.stages.push_back(last);
  return plan;
}

ImagePlan PlanLongestEdgeTiles(uint32_t height, uint32_t width,
                               const ImageFamily& family) {
  // The processors allow no longer side than this.
  constexpr uint32_t kMostPixels = 4096;
  // Sets the longer side and derives the other from the shape.
  const auto fit = [](TileShape shape, uint32_t longest, bool even) {
    const double aspect = static_cast<double>(shape.width) / shape.height;
    const auto other = [even](double side) {
      const uint32_t whole = Int(side);
      return std::max(1u, even ? CeilTo(whole, 2) : whole);
    };
    return shape.width >= shape.height
               ? TileShape{other(longest / aspect), longest}
               : TileShape{longest, other(longest * aspect)};
  };
  const uint32_t tile = family.tile;
  TileShape first = fit({height, width}, family.longest_edge, true);
  if (std::max(first.height, first.width) > kMostPixels) {
    first = fit(first, kMostPixels, false);
  }
  TileShape canvas =
      fit(first, CeilTo(std::max(first.height, first.width), tile), false);
  canvas = {CeilTo(canvas.height, tile), CeilTo(canvas.width, tile)};

  ImagePlan plan;
  PlanStage shrunk = WholeStage(Whole(height, width), first);
  shrunk.rows = shrunk.columns = 0;
  plan.stages.push_back(shrunk);
  PlanStage tiles = WholeStage(Whole(first.height, first.width), canvas);
  tiles.source = 0;
  Cut(tile, tile, tiles);
  plan.stages.push_back(tiles);
  if (tiles.rows * tiles.columns == 1) return plan;
  plan.tile_rows = tiles.rows;
  plan.tile_columns = tiles.columns;
  PlanStage global =
      WholeStage(Whole(canvas.height, canvas.width), {tile, tile});
  global.source = 1;
  plan.stages.push_back(global);
  return plan;
}

ImagePlan PlanTileGrid(uint32_t height, uint32_t width,
                       const ImageFamily& family, const TileGrids& grids) {
  const TileShape best = grids.Nearest(height, width);
  return TilesAndThumbnail(
      WholeStage(Whole(height, width),
                 {best.height * family.tile, best.width * family.tile}),
      family.tile);
}

}  // namespace ballast
