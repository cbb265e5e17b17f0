#include "server/image_plan/image_planner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "server/image_plan/fit_rules.h"
#include "server/image_plan/stage_parts.h"
#include "server/image_plan/tile_rules.h"

namespace ballast {
namespace {

using enum ImageRule;

// Numbers above these would plan more pixels or crops than any model takes.
constexpr uint32_t kMaxSideNumber = 1 << 16;
constexpr uint32_t kMaxTiles = 1024;

bool ReadsTile(ImageRule rule) { return rule >= kFixedSize; }

absl::Status CheckFamily(const ImageFamily& f) {
  const auto wrong = [&f](absl::string_view key, uint64_t found,
                          absl::string_view wanted) {
    return absl::InvalidArgumentError(absl::StrCat("image family \"", f.name,
                                                   "\": ", key, " is ", found,
                                                   "; wanted ", wanted));
  };
  const auto side = [](uint64_t n) { return n >= 1 && n <= kMaxSideNumber; };
  if (!side(f.patch)) return wrong("patch", f.patch, "1 to 65536");
  if (!side(f.merge)) return wrong("merge", f.merge, "1 to 65536");
  if (uint64_t{f.patch} * f.merge > kMaxSideNumber) {
    return wrong("patch * merge", uint64_t{f.patch} * f.merge, "1 to 65536");
  }
  if (!side(f.temporal_patch)) {
    return wrong("temporal_patch", f.temporal_patch, "1 to 65536");
  }
  if (f.rule == kSmartResize || f.rule == kSmartResizeFrames) {
    if (f.min_pixels > f.max_pixels || f.max_pixels == 0) {
      return wrong("max_pixels", f.max_pixels,
                   absl::StrCat("at least min_pixels, ", f.min_pixels));
    }
  }
  if ((f.rule == kFillBudget || f.rule == kFitBudget ||
       f.rule == kShrinkAndPad) &&
      f.max_patches == 0) {
    return wrong("max_patches", 0, "1 or more");
  }
  if ((f.rule == kShrinkAndPad || f.rule == kLongestEdge ||
       f.rule == kLongestEdgeTiles) &&
      !side(f.longest_edge)) {
    return wrong("longest_edge", f.longest_edge, "1 to 65536");
  }
  if (!ReadsTile(f.rule)) return absl::OkStatus();
  if (!side(f.tile) || f.tile < f.patch) {
    return wrong("tile", f.tile, "the side of a patch to 65536");
  }
  if (f.rule == kTileGrid || f.rule == kBestFitTiles || f.rule == kSlices ||
      f.rule == kFixedSize) {
    if (f.max_tiles < 1 || f.max_tiles > kMaxTiles ||
        f.min_tiles > f.max_tiles) {
      return wrong("max_tiles", f.max_tiles, "min_tiles to 1024");
    }
  }
  if (f.rule == kFixedSize && f.max_tiles > 1 && f.min_crop == 0) {
    return wrong("min_crop", 0, "1 or more");
  }
  if (f.rule == kPinpoints) {
    if (f.canvases.empty()) return wrong("canvases", 0, "at least one");
    for (const TileShape& canvas : f.canvases) {
      for (const uint32_t length : {canvas.height, canvas.width}) {
        if (!side(length) || length % f.tile != 0) {
          return wrong("a side of a canvas", length,
                       absl::StrCat("a multiple of tile, ", f.tile));
        }
      }
    }
  }
  return absl::OkStatus();
}

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

// Fills the counts of a plan whose stages are made.
void Count(uint32_t height, uint32_t width, const ImageFamily& family,
           ImagePlan& plan) {
  plan.tokens = family.tokens_an_image;
  for (const PlanStage& stage : plan.stages) {
    const uint32_t crops = stage.rows * stage.columns;
    const uint32_t rows = stage.crop.height / family.patch;
    const uint32_t columns = stage.crop.width / family.patch;
    const uint64_t token_rows = rows / family.merge;
    plan.crops += crops;
    plan.patches += uint64_t{crops} * rows * columns;
    plan.tokens +=
        crops * token_rows * (columns / family.merge + family.tokens_a_row);
  }
  if (family.rule == kPinpoints) {
    plan.tokens = PinpointTokens(height, width, family, plan);
  }
}

}  // namespace

ImagePlanner::ImagePlanner(ImageFamily family) : family_(std::move(family)) {
  if (family_.rule == kTileGrid) grids_ = TileGrids(family_);
  if (family_.rule == kBestFitTiles) grids_ = BestFitGrids(family_);
}

absl::StatusOr<ImagePlanner> ImagePlanner::Create(ImageFamily family) {
  BALLAST_RETURN_IF_ERROR(CheckFamily(family));
  return ImagePlanner(std::move(family));
}

absl::StatusOr<ImagePlan> ImagePlanner::MakeStages(uint32_t height,
                                                   uint32_t width) const {
  const ImageFamily& f = family_;
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
      return PlanPinpoints(height, width, f);
    case kTileGrid:
      return PlanTileGrid(height, width, f, grids_);
    case kLongestEdgeTiles:
      return PlanLongestEdgeTiles(height, width, f);
    case kBestFitTiles:
      return PlanBestFitTiles(height, width, f, grids_);
    case kSlices:
      return PlanSlices(height, width, f);
  }
  return absl::InternalError("unknown image rule");
}

absl::StatusOr<ImagePlan> ImagePlanner::Plan(uint32_t height,
                                             uint32_t width) const {
  if (height == 0 || width == 0 || height > kMaxSide || width > kMaxSide) {
    return absl::InvalidArgumentError(
        absl::StrCat("an image of height ", height, " and width ", width,
                     "; wanted sides of 1 to ", kMaxSide));
  }
  absl::StatusOr<ImagePlan> plan = MakeStages(height, width);
  if (plan.ok()) Count(height, width, family_, *plan);
  return plan;
}

}  // namespace ballast
