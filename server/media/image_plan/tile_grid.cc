#include "server/media/image_plan/tile_grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ballast {

namespace {

double GetRatio(const TileShape& grid) {
  return static_cast<double>(grid.width) / grid.height;
}

// Index of the first value that is at least `wanted`, or the number of values:
// std::lower_bound without a branch that depends on the image.
size_t FirstFrom(const std::vector<double>& values, double wanted) {
  size_t first = 0;
  size_t left = values.size();
  while (left > 1) {
    const size_t half = left / 2;
    first += values[first + half - 1] < wanted ? half : 0;
    left -= half;
  }
  return first + (left == 1 && values[first] < wanted ? 1 : 0);
}

}  // namespace

TileGrids::TileGrids(const ImageFamily& family, uint32_t most) {
  const double half_tile = 0.5 * family.tile * family.tile;
  for (uint32_t columns = 1; columns <= most; ++columns) {
    for (uint32_t rows = 1; rows * columns <= most; ++rows) {
      if (rows * columns < family.min_tiles) continue;
      grids_.push_back({{rows, columns}, 0, half_tile * rows * columns});
    }
  }
  std::stable_sort(grids_.begin(), grids_.end(),
                   [](const Grid& a, const Grid& b) {
                     return a.half_pixels < b.half_pixels;
                   });
  for (size_t i = 0; i < grids_.size(); ++i) grids_[i].place = i;
  std::stable_sort(grids_.begin(), grids_.end(),
                   [](const Grid& a, const Grid& b) {
                     return GetRatio(a.shape) < GetRatio(b.shape);
                   });
  for (size_t i = 0; i < grids_.size(); ++i) {
    const double ratio = GetRatio(grids_[i].shape);
    if (!ratios_.empty() && ratios_.back() == ratio) continue;
    ratios_.push_back(ratio);
    starts_.push_back(i);
  }
  starts_.push_back(grids_.size());
}

TileShape TileGrids::Nearest(uint32_t height, uint32_t width) const {
  const double aspect = static_cast<double>(width) / height;
  const double area = static_cast<double>(width) * height;
  const size_t above = FirstFrom(ratios_, aspect);
  // The nearest ratios: one, or two if one is larger by as much as the other is
  // smaller.
  size_t first = above;
  size_t last = above;
  if (above == ratios_.size()) {
    first = last = above - 1;
  } else if (above > 0) {
    const double below_by = std::abs(aspect - ratios_[above - 1]);
    const double above_by = std::abs(aspect - ratios_[above]);
    first = below_by <= above_by ? above - 1 : above;
    last = above_by <= below_by ? above : above - 1;
  }
  const Grid* best = nullptr;
  const Grid* least = &grids_[starts_[first]];
  for (size_t i = starts_[first]; i < starts_[last + 1]; ++i) {
    const Grid& grid = grids_[i];
    if (grid.place < least->place) least = &grid;
    if (area > grid.half_pixels &&
        (best == nullptr || grid.place > best->place)) {
      best = &grid;
    }
  }
  return best == nullptr ? least->shape : best->shape;
}

Canvases::Canvases(const ImageFamily& family) {
  by_area_ = family.canvases;
  std::stable_sort(by_area_.begin(), by_area_.end(),
                   [](const TileShape& a, const TileShape& b) {
                     return uint64_t{a.height} * a.width <
                            uint64_t{b.height} * b.width;
                   });
  for (const TileShape& canvas : by_area_) {
    heights_.push_back(canvas.height);
    columns_.push_back({canvas.width, 0});
  }
  std::sort(heights_.begin(), heights_.end());
  heights_.erase(std::unique(heights_.begin(), heights_.end()), heights_.end());
  std::sort(columns_.begin(), columns_.end(),
            [](const Column& a, const Column& b) { return a.width < b.width; });
  columns_.erase(std::unique(columns_.begin(), columns_.end(),
                             [](const Column& a, const Column& b) {
                               return a.width == b.width;
                             }),
                 columns_.end());
  for (const TileShape& canvas : by_area_) {
    const auto column = std::lower_bound(
        columns_.begin(), columns_.end(), canvas.width,
        [](const Column& c, uint32_t width) { return c.width < width; });
    const size_t height =
        std::lower_bound(heights_.begin(), heights_.end(), canvas.height) -
        heights_.begin();
    column->last_height = std::max(column->last_height, height);
  }
}

TileShape Canvases::Best(uint32_t height, uint32_t width) const {
  const double h = height;
  const double w = width;
  const int64_t whole = int64_t{height} * width;
  // The image's pixels at a scale. They grow with the scale, so a canvas keeps
  // the smaller of the numbers for its width and for its height.
  const auto kept = [&](double scale) {
    return std::min(
        static_cast<int64_t>(w * scale) * static_cast<int64_t>(h * scale),
        whole);
  };
  const auto by_width = [&](size_t i) { return kept(columns_[i].width / w); };
  const auto by_height = [&](size_t i) { return kept(heights_[i] / h); };
  size_t column = 0;
  int64_t most = -1;
  size_t last_height = heights_.size();
  int64_t of_height = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].last_height != last_height) {
      last_height = columns_[i].last_height;
      of_height = by_height(last_height);
    }
    const int64_t pixels = std::min(by_width(i), of_height);
    column = pixels > most ? i : column;
    most = std::max(most, pixels);
  }
  // The narrowest and the lowest canvases that keep as many pixels.
  size_t row = columns_[column].last_height;
  while (column > 0 && by_width(column - 1) >= most) --column;
  while (row > 0 && by_height(row - 1) >= most) --row;
  const uint32_t least_width = columns_[column].width;
  const uint32_t least_height = heights_[row];
  return *std::find_if(
      by_area_.begin(), by_area_.end(), [&](const TileShape& canvas) {
        return canvas.width >= least_width && canvas.height >= least_height;
      });
}

SliceGrids::SliceGrids(const ImageFamily& family) {
  starts_ = {0, 0};
  for (uint32_t slices = 1; slices <= family.max_tiles; ++slices) {
    for (uint32_t rows = 1; rows <= slices; ++rows) {
      if (slices % rows != 0 || slices == 1) continue;
      const TileShape grid = {rows, slices / rows};
      grids_.push_back({grid, std::log(GetRatio(grid))});
    }
    starts_.push_back(grids_.size());
  }
  // Grids for one slice more than the family's maximum.
  starts_.push_back(grids_.size());
}

TileShape SliceGrids::Nearest(uint32_t slices, double log_ratio) const {
  TileShape best = {1, 1};
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = starts_[slices - 1]; i < starts_[slices + 2]; ++i) {
    const Grid& grid = grids_[i];
    const double error = std::abs(log_ratio - grid.log_ratio);
    if (error < least || (error == least && grid.shape.height > best.height)) {
      best = grid.shape;
      least = error;
    }
  }
  return best;
}

}  // namespace ballast
