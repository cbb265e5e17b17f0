#include "server/image_plan/image_planner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/image_plan/fit_rules.h"
#include "server/image_plan/image_family.h"
#include "server/image_plan/tile_rules.h"

namespace ballast {
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
  if (family_.rule == kTileGrid) tile_grids_ = TileGrids(family_);
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
      return PlanTileGrid(height, width, f, tile_grids_);
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
