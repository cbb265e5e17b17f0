#include "server/media/image_plan/tile_rules.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

namespace {

// The number of crops of an image much longer than wide, or 0.
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

void SmartSize::Enlarge() {
  if (height >= factor && width >= factor) return;
  const double scale = std::max(factor / height, factor / width);
  height = std::trunc(height * scale);
  width = std::trunc(width * scale);
}

bool SmartSize::IsTooLong() const {
  constexpr double kMaxRatio = 200;
  return std::max(height, width) / std::min(height, width) > kMaxRatio;
}

std::array<double, 2> SmartSize::Resize() const {
  // nearbyint rounds half to even, like Python's round().
  double out_h = std::max(least, std::nearbyint(height / factor) * factor);
  double out_w = std::max(least, std::nearbyint(width / factor) * factor);
  if (counted_frames * out_h * out_w > max_pixels) {
    const double beta = std::sqrt(frames * height * width / max_pixels);
    out_h = std::max(least_shrunk, std::floor(height / beta / factor) * factor);
    out_w = std::max(least_shrunk, std::floor(width / beta / factor) * factor);
  } else if (counted_frames * out_h * out_w < min_pixels) {
    const double beta = std::sqrt(min_pixels / (frames * height * width));
    out_h = std::ceil(height * beta / factor) * factor;
    out_w = std::ceil(width * beta / factor) * factor;
  }
  return {out_h, out_w};
}

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
  // Limit of the longer side in the processors.
  constexpr uint32_t kMaxPixels = 4096;
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
  if (std::max(first.height, first.width) > kMaxPixels) {
    first = fit(first, kMaxPixels, false);
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

namespace {

// Two ratios are compared in the way in which PyTorch compares a float32 tensor
// with a number.
struct Scale {
  double value = 0;  // rounded to a float if is_float
  bool is_float = false;
};

// target / original, in floats where the processor has a tensor as target.
Scale GetScale(uint32_t target, uint32_t original, bool is_float) {
  if (is_float) {
    return {static_cast<float>(target) / static_cast<float>(original), true};
  }
  return {static_cast<double>(target) / original, false};
}

uint32_t FloorProduct(uint32_t side, const Scale& scale) {
  if (!scale.is_float) return Int(side * scale.value);
  return Int(static_cast<float>(side) * static_cast<float>(scale.value));
}

// The scale at which `tiles` tiles cover a side; the processor holds it in a
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
// shrinks it least; among several the one with fewest tiles. A grid's scale is
// the smaller of its sides' scales, and each side's scale grows with its tiles.
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
  // From this number of rows on, the columns that are left decide; below it,
  // the rows.
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
  const Scale scale_w = GetScale(target.width, width, canvas.width < free_w);
  const Scale scale_h = GetScale(target.height, height, canvas.height < free_h);
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

namespace {

// Python's a // b, as a whole number: 135 // (135 / 81) is 80. `a` and `b` are
// positive.
uint64_t FloorDivide(double a, double b) {
  const double quotient = (a - std::fmod(a, b)) / b;
  const double down = std::floor(quotient);
  return static_cast<uint64_t>(quotient - down > 0.5 ? down + 1 : down);
}

}  // namespace

uint64_t PinpointTokens(uint32_t height, uint32_t width,
                        const ImageFamily& family, const ImagePlan& plan) {
  const uint32_t side = family.tile / family.patch;
  const uint64_t base = uint64_t{side} * side;
  uint64_t rows = uint64_t{side} * plan.tile_rows;
  uint64_t columns = uint64_t{side} * plan.tile_columns;
  // int(round(x, 7)): products that are whole numbers except for rounding count
  // as whole.
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
      rows = FloorDivide(static_cast<double>(rows), ratio);
      columns = FloorDivide(static_cast<double>(columns), ratio);
    }
  }
  return base + rows * columns + rows;
}

namespace {

// The whole number nearest to `value`, half to even; `value` is 0 to 2^51. At
// 2^52 doubles are whole numbers. Equal to std::nearbyint, which is a function
// call.
double Nearest(double value) {
  constexpr double kWhole = 0x1p52;
  return (value + kWhole) - kWhole;
}

// As std::trunc and std::ceil, without a function call. `value` is 0 to 2^52.
double Down(double value) {
  return static_cast<double>(static_cast<int64_t>(value));
}
double Up(double value) {
  const double down = Down(value);
  return down < value ? down + 1 : down;
}

// The multiple of `divisor` nearest to `length`, half to even, at least one.
double Divisible(double length, double divisor) {
  return std::max(Nearest(length / divisor) * divisor, divisor);
}

// The size of a view of h*w pixels: about tile*tile pixels if `enlarge` or the
// image is larger, sides multiples of patch*merge.
absl::StatusOr<TileShape> ViewSize(double h, double w,
                                   const ImageFamily& family, bool enlarge) {
  const double tile = family.tile;
  if (h * w > tile * tile || enlarge) {
    const double aspect = w / h;
    h = Down(tile / std::sqrt(aspect));
    w = Down(h * aspect);
  }
  const double factor = static_cast<double>(family.patch) * family.merge;
  const double out_h = Divisible(h, factor);
  const double out_w = Divisible(w, factor);
  constexpr double kMaxCount = uint32_t{1} << 26;
  if (out_h > kMaxCount || out_w > kMaxCount) {
    return absl::InvalidArgumentError(
        absl::StrCat("a view of ", out_h, "x", out_w,
                     " pixels; the image is too long for its model"));
  }
  return TileShape{static_cast<uint32_t>(out_h), static_cast<uint32_t>(out_w)};
}

// The grid of slices nearest in aspect ratio; {0, 0} for an image that is not
// cut.
TileShape SliceGrid(double h, double w, const ImageFamily& family,
                    const SliceGrids& grids) {
  const double tiles =
      Up(w * h / (static_cast<double>(family.tile) * family.tile));
  const auto slices =
      static_cast<uint32_t>(std::min<double>(tiles, family.max_tiles));
  if (slices <= 1) return {0, 0};
  return grids.Nearest(slices, std::log(w / h));
}

}  // namespace

absl::StatusOr<ImagePlan> PlanSlices(uint32_t height, uint32_t width,
                                     const ImageFamily& family,
                                     const SliceGrids& grids) {
  const double h = height;
  const double w = width;
  const PixelRect whole = {0, 0, height, width};
  const TileShape grid = SliceGrid(h, w, family, grids);
  ImagePlan plan;
  BALLAST_ASSIGN_OR_RETURN(const TileShape view,
                           ViewSize(h, w, family, grid.height == 0));
  plan.stages.push_back(WholeStage(whole, view));
  if (grid.height == 0) return plan;
  BALLAST_ASSIGN_OR_RETURN(
      const TileShape slice,
      ViewSize(Divisible(h, grid.height) / grid.height,
               Divisible(w, grid.width) / grid.width, family, true));
  PlanStage slices =
      WholeStage(whole, {slice.height * grid.height, slice.width * grid.width});
  slices.crop = {0, 0, slice.height, slice.width};
  slices.rows = grid.height;
  slices.columns = grid.width;
  plan.stages.push_back(slices);
  plan.tile_rows = grid.height;
  plan.tile_columns = grid.width;
  return plan;
}

}  // namespace ballast
