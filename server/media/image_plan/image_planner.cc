#include "server/media/image_plan/image_planner.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/media/image_plan/tile_rules.h"

namespace ballast {
namespace {

constexpr double kMaxSide = uint32_t{1} << 26;

// std::ceil for numbers from 0 to 2^53. On plain x86-64, std::ceil is a
// function call.
double Ceil(double value) {
  const auto whole = static_cast<double>(static_cast<int64_t>(value));
  return whole < value ? whole + 1 : whole;
}

absl::Status Refused(uint32_t height, uint32_t width, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "an image of height ", height, " and width ", width, "; ", why));
}

absl::StatusOr<TileShape> Sized(uint32_t height, uint32_t width, double out_h,
                                double out_w) {
  if (!(out_h >= 1 && out_w >= 1 && out_h <= kMaxSide && out_w <= kMaxSide)) {
    return Refused(height, width,
                   absl::StrCat("the model's bounds give it the size ", out_h,
                                "x", out_w));
  }
  return TileShape{static_cast<uint32_t>(out_h), static_cast<uint32_t>(out_w)};
}

// `smart` is of an image of height*width.
absl::StatusOr<TileShape> ResizeWithin(uint32_t height, uint32_t width,
                                       const SmartSize& smart) {
  if (smart.IsTooLong()) {
    return Refused(height, width, "wanted sides in a ratio of at most 200");
  }
  const auto [out_h, out_w] = smart.Resize();
  return Sized(height, width, out_h, out_w);
}

// The scale beyond which an image of `rows` x `columns` patches, with rows at
// most columns, has more than `most` patches. Sides are rounded up to whole
// patches.
double ScaleOfBudget(double rows, double columns, double most) {
  // Rounding up adds less than a patch to a side: up to this scale all patches
  // fit.
  const double area = rows * columns;
  const double sides = rows + columns;
  const double start =
      2 * (most - 1) /
      (sides + std::sqrt(sides * sides + 4 * area * (most - 1)));
  double count = std::max(1.0, Ceil(rows * start));
  double more_rows = 0;  // the scale beyond which there are `count` rows
  while (true) {
    const double too_wide = std::trunc(most / count) / columns;
    if (too_wide <= more_rows) return more_rows;
    if (too_wide <= count / rows) return too_wide;
    more_rows = count / rows;
    ++count;
  }
}

}  // namespace

absl::StatusOr<TileShape> SmartResize(uint32_t height, uint32_t width,
                                      uint64_t factor, uint64_t min_pixels,
                                      uint64_t max_pixels) {
  SmartSize smart(height, width, static_cast<double>(factor),
                  static_cast<double>(min_pixels),
                  static_cast<double>(max_pixels));
  smart.least_shrunk = smart.factor;
  return ResizeWithin(height, width, smart);
}

absl::StatusOr<TileShape> SmartResizeFrames(uint32_t height, uint32_t width,
                                            uint32_t frames, uint32_t factor,
                                            uint64_t min_pixels,
                                            uint64_t max_pixels) {
  SmartSize smart(height, width, factor, static_cast<double>(min_pixels),
                  static_cast<double>(max_pixels));
  smart.frames = smart.counted_frames = frames;
  smart.least_shrunk = factor;
  smart.Enlarge();
  return ResizeWithin(height, width, smart);
}

absl::StatusOr<TileShape> FillBudget(uint32_t height, uint32_t width,
                                     const ImageFamily& family) {
  const double h = height;
  const double w = width;
  const double multiple = static_cast<double>(family.merge) * family.patch;
  const double target =
      static_cast<double>(family.max_patches) * family.patch * family.patch;
  const double factor = std::sqrt(target / (h * w));
  double out_h = std::floor(factor * h / multiple) * multiple;
  double out_w = std::floor(factor * w / multiple) * multiple;
  const double longest =
      family.max_patches / (family.merge * family.merge) * multiple;
  if (out_h == 0 && out_w == 0) {
    return Refused(height, width, "the model's budget gives it no patch");
  }
  if (out_h == 0) {
    out_h = multiple;
    out_w = std::min(std::floor(w / h) * multiple, longest);
  } else if (out_w == 0) {
    out_w = multiple;
    out_h = std::min(std::floor(h / w) * multiple, longest);
  }
  if (out_h * out_w > target) {
    return Refused(height, width, "it takes more patches than the model has");
  }
  return Sized(height, width, out_h, out_w);
}

TileShape FitBudget(uint32_t height, uint32_t width,
                    const ImageFamily& family) {
  constexpr double kEpsilon = 1e-5;
  const double patch = family.patch;
  const double h = height;
  const double w = width;
  const auto patches = [patch](double scale, double side) {
    return std::max(1.0, Ceil(side * scale / patch));
  };
  // The processor bisects for the scale from which there are too many patches,
  // to within kEpsilon. That scale is computed here, to within rounding.
  constexpr double kMargin = 1e-9;
  constexpr double kMaxScale = 100.0;
  const double limit = ScaleOfBudget(
      std::min(h, w) / patch, std::max(h, w) / patch, family.max_patches);
  const double surely_fits = limit * (1 - kMargin);
  const double surely_exceeds = limit * (1 + kMargin);
  // The bisection ends within kEpsilon below the limit. In most cases the
  // patches of both sides are the same there, and the patches of only one side
  // change at the limit.
  const double rows = patches(surely_fits, h);
  const double columns = patches(surely_fits, w);
  const double least = surely_fits - 2 * kEpsilon;
  if (least > kEpsilon && surely_exceeds < kMaxScale &&
      patches(least, h) == rows && patches(least, w) == columns &&
      (patches(surely_exceeds, h) == rows) !=
          (patches(surely_exceeds, w) == columns)) {
    return {static_cast<uint32_t>(rows * patch),
            static_cast<uint32_t>(columns * patch)};
  }
  const double most = family.max_patches;
  double low = kEpsilon / 10;
  double high = kMaxScale;
  while (high - low >= kEpsilon) {
    const double scale = (low + high) / 2;
    const bool fits =
        scale <= surely_fits || (scale < surely_exceeds &&
                                 patches(scale, h) * patches(scale, w) <= most);
    low = fits ? scale : low;
    high = fits ? high : scale;
  }
  return {static_cast<uint32_t>(patches(low, h) * patch),
          static_cast<uint32_t>(patches(low, w) * patch)};
}

absl::StatusOr<TileShape> FitLongestEdge(uint32_t height, uint32_t width,
                                         const ImageFamily& family) {
  double h = height;
  double w = width;
  const double longest = family.longest_edge;
  const double ratio = std::max(h / longest, w / longest);
  if (ratio > 1) {
    // nearbyint rounds half to even, like Python's round().
    h = family.round_sides ? std::nearbyint(h / ratio) : std::floor(h / ratio);
    w = family.round_sides ? std::nearbyint(w / ratio) : std::floor(w / ratio);
  }
  const double multiple = static_cast<double>(family.patch) * family.merge;
  return Sized(height, width, std::ceil(h / multiple) * multiple,
               std::ceil(w / multiple) * multiple);
}

TileShape ShrinkToBudget(uint32_t height, uint32_t width,
                         const ImageFamily& family) {
  const double h = height;
  const double w = width;
  const double rows = std::max<uint32_t>(1, height / family.patch);
  const double columns = std::max<uint32_t>(1, width / family.patch);
  const double longest = family.longest_edge;
  const double scale =
      std::min({1.0, std::sqrt(family.max_patches / (rows * columns)),
                longest / h, longest / w});
  const auto side = [&](double length) {
    return static_cast<uint32_t>(
        std::min(std::max(1.0, std::trunc(length * scale)), longest));
  };
  return {side(h), side(w)};
}

namespace {

using enum ImageRule;

absl::StatusOr<ImagePlan> OneCrop(uint32_t height, uint32_t width,
                                  const absl::StatusOr<TileShape>& size) {
  if (!size.ok()) return size.status();
  ImagePlan plan;
  plan.stages.push_back(WholeStage({0, 0, height, width}, *size));
  return plan;
}

ImagePlan PadToPatches(uint32_t height, uint32_t width,
                       const ImageFamily& family) {
  PlanStage stage =
      WholeStage({0, 0, height, width}, ShrinkToBudget(height, width, family));
  const uint32_t multiple = family.patch * family.merge;
  stage.height = CeilTo(stage.height, multiple);
  stage.width = CeilTo(stage.width, multiple);
  stage.crop = {0, 0, stage.height, stage.width};
  ImagePlan plan;
  plan.stages.push_back(stage);
  return plan;
}

// Whether the image is one crop because its sample has other images.
bool IsWholeBesideOthers(const ImageFamily& family, uint32_t images) {
  return family.cut_alone && images > 1;
}

// Whether the family's tokens_an_image are the texts before and after.
bool EndsAreText(const ImageFamily& family) {
  const ImageMarks& marks = family.marks;
  if (marks.before.empty() && marks.after.empty()) return false;
  // A tower that makes an embedding for each newline makes one for both ends,
  // too (HunyuanVL); the texts around them are not counted.
  return family.tokens_a_row == 0 || MarksParts(marks);
}

// Tokens that are counted and written as text.
uint64_t TextTokens(const ImageFamily& family, uint64_t token_rows) {
  return (family.marks.row_end.empty() ? 0 : family.tokens_a_row * token_rows) +
         (EndsAreText(family) ? family.tokens_an_image : 0);
}

// Fills the counts of a plan whose stages are made.
void Count(uint32_t height, uint32_t width, uint32_t images,
           const ImageFamily& family, ImagePlan& plan) {
  uint64_t all_rows = 0;
  plan.tokens = family.tokens_an_image;
  for (const PlanStage& stage : plan.stages) {
    const uint32_t crops = stage.rows * stage.columns;
    const uint32_t rows = stage.crop.height / family.patch;
    const uint32_t columns = stage.crop.width / family.patch;
    const uint64_t token_rows = rows / family.merge;
    plan.crops += crops;
    plan.patches += uint64_t{crops} * rows * columns;
    all_rows += crops * token_rows;
    plan.tokens +=
        crops * token_rows * (columns / family.merge + family.tokens_a_row);
  }
  if (IsWholeBesideOthers(family, images)) {
    ++plan.tokens;  // a newline
  } else if (family.rule == kPinpoints) {
    plan.tokens = PinpointTokens(height, width, family, plan);
  }
  plan.placeholders = plan.tokens - TextTokens(family, all_rows);
}

}  // namespace

ImagePlanner::ImagePlanner(ImageFamily family) : family_(std::move(family)) {
  if (family_.rule == kTileGrid) {
    const uint32_t most = family_.max_tiles;
    // Beyond so many images each has the fewest tiles.
    const uint32_t shares = family_.share_tiles ? most / family_.min_tiles : 1;
    for (uint32_t images = 1; images <= shares; ++images) {
      tile_grids_.emplace_back(family_,
                               std::max(family_.min_tiles, most / images));
    }
  }
  if (family_.rule == kPinpoints) canvases_ = Canvases(family_);
  if (family_.rule == kSlices) slice_grids_ = SliceGrids(family_);
}

absl::StatusOr<ImagePlanner> ImagePlanner::Create(ImageFamily family) {
  if (const auto fault = FindFamilyFault(family)) {
    return absl::InvalidArgumentError(
        absl::StrCat("image family \"", family.name, "\": ", fault->key, " is ",
                     fault->found, "; wanted ", fault->wanted));
  }
  return ImagePlanner(std::move(family));
}

absl::StatusOr<ImagePlan> ImagePlanner::MakeStages(uint32_t height,
                                                   uint32_t width,
                                                   uint32_t images) const {
  const ImageFamily& f = family_;
  if (IsWholeBesideOthers(f, images)) return PlanPadSquare(height, width, f);
  const uint32_t factor = f.patch * f.merge;
  switch (f.rule) {
    case kSmartResize:
      return OneCrop(
          height, width,
          SmartResize(height, width, factor, f.min_pixels, f.max_pixels));
    case kSmartResizeFrames:
      return OneCrop(height, width,
                     SmartResizeFrames(height, width, f.temporal_patch, factor,
                                       f.min_pixels, f.max_pixels));
    case kFillBudget:
      return OneCrop(height, width, FillBudget(height, width, f));
    case kFitBudget:
      return OneCrop(height, width, FitBudget(height, width, f));
    case kShrinkAndPad:
      return PadToPatches(height, width, f);
    case kLongestEdge:
      return OneCrop(height, width, FitLongestEdge(height, width, f));
    case kFixedSize:
      return PlanFixedSize(height, width, f);
    case kCenterCrop:
      return PlanCenterCrop(height, width, f);
    case kPadSquare:
      return PlanPadSquare(height, width, f);
    case kPinpoints:
      return PlanPinpoints(height, width, f, canvases_);
    case kTileGrid:
      return PlanTileGrid(height, width, f,
                          tile_grids_[std::min<size_t>(std::max(images, 1u),
                                                       tile_grids_.size()) -
                                      1]);
    case kLongestEdgeTiles:
      return PlanLongestEdgeTiles(height, width, f);
    case kBestFitTiles:
      return PlanBestFitTiles(height, width, f);
    case kSlices:
      return PlanSlices(height, width, f, slice_grids_);
  }
  return absl::InternalError("unknown image rule");
}

absl::StatusOr<ImagePlan> ImagePlanner::Plan(uint32_t height, uint32_t width,
                                             uint32_t images) const {
  if (height == 0 || width == 0 || height > kMaxSide || width > kMaxSide) {
    return absl::InvalidArgumentError(
        absl::StrCat("an image of height ", height, " and width ", width,
                     "; wanted sides of 1 to ", kMaxSide));
  }
  absl::StatusOr<ImagePlan> plan = MakeStages(height, width, images);
  if (plan.ok()) Count(height, width, images, family_, *plan);
  return plan;
}

}  // namespace ballast
