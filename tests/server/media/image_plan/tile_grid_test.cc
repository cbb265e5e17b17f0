// Holds what is chosen among prepared grids against a look at every grid, as
// the families' processors do.
#include "server/media/image_plan/tile_grid.h"
#include "server/model/profiles.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "server/media/image_plan/image_planner.h"

namespace ballast {
namespace {

using Sides = std::pair<uint32_t, uint32_t>;  // height, width

// Random sides, sides at borders of tiles, and sides whose ratio is one of
// small numbers, which lie on and between grids.
std::vector<Sides> DrawnSides(uint32_t tile, uint32_t count) {
  std::mt19937 random(tile);
  const auto from = [&](uint32_t first, uint32_t last) {
    return first + static_cast<uint32_t>(random() % (last - first + 1));
  };
  std::vector<Sides> sides = {{1, 1}, {1, 1 << 26}, {1 << 26, 1}};
  for (uint32_t i = 0; i < count; ++i) {
    sides.push_back({from(1, 5000), from(1, 5000)});
    sides.push_back({from(1, 40), from(1, 9000)});
    sides.push_back({tile * from(1, 12) + from(0, 2) - 1,
                     tile * from(1, 12) + from(0, 2) - 1});
    const uint32_t unit = from(1, 200);
    sides.push_back({unit * from(1, 24), unit * from(1, 24)});
  }
  return sides;
}

Sides Of(const TileShape& shape) { return {shape.height, shape.width}; }

TEST(TileGridsTest, TakesTheNearestRatio) {
  for (const auto& [least, most] : {Sides{1, 12}, {3, 7}, {12, 12}, {1, 40}}) {
    ImageFamily family = *FindImageFamily("internvl3");
    family.min_tiles = least;
    family.max_tiles = most;
    std::vector<Sides> grids;  // by tiles, then by columns
    for (uint32_t tiles = least; tiles <= most; ++tiles) {
      for (uint32_t columns = 1; columns <= tiles; ++columns) {
        if (tiles % columns == 0) grids.push_back({tiles / columns, columns});
      }
    }
    const TileGrids prepared(family, most);
    for (const auto& [height, width] : DrawnSides(448, 2000)) {
      const double aspect = static_cast<double>(width) / height;
      double nearest = std::numeric_limits<double>::infinity();
      Sides best;
      for (const auto& [rows, columns] : grids) {
        const double far =
            std::abs(aspect - static_cast<double>(columns) / rows);
        const double half = 0.5 * 448 * 448 * rows * columns;
        const bool is_large = static_cast<double>(width) * height > half;
        if (far < nearest || (far == nearest && is_large)) {
          best = {rows, columns};
          nearest = far;
        }
      }
      ASSERT_EQ(Of(prepared.Nearest(height, width)), best)
          << height << "x" << width << ", " << least << " to " << most;
    }
  }
}

TEST(CanvasesTest, TakesTheCanvasThatKeepsMost) {
  ImageFamily ragged = *FindImageFamily("llava_next");
  ragged.canvases = {{336, 2016}, {1008, 336}, {1008, 1008}, {672, 672},
                     {2016, 336}, {336, 1344}, {672, 672},   {1344, 672}};
  for (const ImageFamily& family : {*FindImageFamily("llava_onevision"),
                                    *FindImageFamily("llava_next"), ragged}) {
    const Canvases prepared(family);
    for (const auto& [height, width] : DrawnSides(family.tile, 2000)) {
      int64_t most = -1;
      int64_t least_wasted = 0;
      Sides best;
      for (const TileShape& canvas : family.canvases) {
        const double h = height;
        const double w = width;
        const double scale = std::min(canvas.width / w, canvas.height / h);
        const int64_t kept = std::min(
            static_cast<int64_t>(w * scale) * static_cast<int64_t>(h * scale),
            int64_t{height} * width);
        const int64_t wasted = int64_t{canvas.height} * canvas.width - kept;
        if (kept > most || (kept == most && wasted < least_wasted)) {
          most = kept;
          least_wasted = wasted;
          best = Of(canvas);
        }
      }
      ASSERT_EQ(Of(prepared.Best(height, width)), best)
          << height << "x" << width << " of " << family.name;
    }
  }
}

TEST(SliceGridsTest, TakesTheNearestLogarithm) {
  for (const uint32_t most : {2, 9, 30}) {
    ImageFamily family = *FindImageFamily("minicpmv4_6");
    family.max_tiles = most;
    const SliceGrids prepared(family);
    for (const auto& [height, width] : DrawnSides(448, 500)) {
      const double log_ratio = std::log(static_cast<double>(width) / height);
      for (uint32_t slices = 2; slices <= most; ++slices) {
        double nearest = std::numeric_limits<double>::infinity();
        Sides best;
        for (uint32_t n = slices - 1; n <= std::min(slices + 1, most); ++n) {
          for (uint32_t rows = 1; rows <= n && n > 1; ++rows) {
            if (n % rows != 0) continue;
            const double far = std::abs(
                log_ratio - std::log(static_cast<double>(n / rows) / rows));
            if (far < nearest || (far == nearest && rows > best.first)) {
              best = {rows, n / rows};
              nearest = far;
            }
          }
        }
        ASSERT_EQ(Of(prepared.Nearest(slices, log_ratio)), best)
            << height << "x" << width << " in " << slices;
      }
    }
  }
}

// Llama 4's grid, which no list holds.
TEST(BestFitTest, EnlargesOrShrinksLeast) {
  for (const uint32_t most : {1, 4, 16, 50}) {
    ImageFamily family = *FindImageFamily("llama4");
    family.max_tiles = most;
    const ImagePlanner planner = ImagePlanner::Create(family).value();
    for (const auto& [height, width] : DrawnSides(336, 1000)) {
      float best_scale = 0;
      Sides best;
      for (uint32_t rows = 1; rows <= most; ++rows) {
        for (uint32_t columns = 1; rows * columns <= most; ++columns) {
          const float scale = std::min(
              static_cast<float>(columns * 336) / static_cast<float>(width),
              static_cast<float>(rows * 336) / static_cast<float>(height));
          const bool is_better = best_scale >= 1
                                     ? scale >= 1 && scale < best_scale
                                     : scale > best_scale;
          if (is_better || (scale == best_scale &&
                            rows * columns < best.first * best.second)) {
            best = {rows, columns};
            best_scale = scale;
          }
        }
      }
      const auto plan = planner.Plan(height, width);
      ASSERT_TRUE(plan.ok()) << plan.status();
      const PlanStage& tiles = plan->stages[0];
      ASSERT_EQ(Sides(tiles.rows, tiles.columns), best)
          << height << "x" << width << ", " << most << " tiles";
    }
  }
}

}  // namespace
}  // namespace ballast
