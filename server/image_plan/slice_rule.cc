#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/image_plan/stage_parts.h"
#include "server/image_plan/tile_rules.h"

namespace ballast {
namespace {

// The whole number nearest to `value`, half to even; `value` is 0 to 2^51. At
// 2^52 doubles are whole numbers. As std::nearbyint, which is a call.
double Nearest(double value) {
  constexpr double kWhole = 0x1p52;
  return (value + kWhole) - kWhole;
}

// `value` is 0 to 2^52. As std::trunc and std::ceil, which are calls.
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
  constexpr double kMost = uint32_t{1} << 26;
  if (out_h > kMost || out_w > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("a view of ", out_h, "x", out_w,
                     " pixels; the image is too long for its model"));
  }
  return TileShape{static_cast<uint32_t>(out_h), static_cast<uint32_t>(out_w)};
}

// The grid of slices nearest in shape; {0, 0} for an image that is not cut.
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
