#include "server/config/model_images.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/image/model_resampling.h"
#include "server/config/profiles.h"
#include "server/image/image_header.h"
#include "server/video/model_videos.h"

namespace ballast {
namespace {

absl::Status CheckCanvases(const ImagePlan& plan) {
  for (const PlanStage& stage : plan.stages) {
    if (uint64_t{stage.height} * stage.width <= kMaxImagePixels) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "would be resized or padded to ", stage.width, "x", stage.height,
        " pixels; at most ", kMaxImagePixels, " are made"));
  }
  if (plan.placeholders > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "would take ", plan.placeholders, " tokens; wanted at most 2^32-1"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelImages> ModelImages::Create(const v1::Model& model) {
  BALLAST_ASSIGN_OR_RETURN(ImagePlanner planner,
                           ImagePlanner::Create(GetImageFamily(model)));
  ModelImages images(model, std::move(planner));
  images.video_ = GetVideoModel(model);
  images.wants_sides_ = images.planner_.family().rule == ImageRule::kPinpoints;
  return images;
}

absl::StatusOr<ModelImages::Share> ModelImages::Add(
    uint32_t height, uint32_t width, uint32_t images,
    std::vector<ImageGrid>* grids) const {
  BALLAST_ASSIGN_OR_RETURN(const ImagePlan plan,
                           planner_.Plan(height, width, images));
  BALLAST_RETURN_IF_ERROR(CheckCanvases(plan));
  const uint32_t patch = planner_.family().patch;
  for (const PlanStage& stage : plan.stages) {
    const ImageGrid grid = {stage.crop.height, stage.crop.width,
                            stage.crop.height / patch,
                            stage.crop.width / patch};
    grids->insert(grids->end(), stage.rows * stage.columns, grid);
  }
  return Share{plan.crops, static_cast<uint32_t>(plan.placeholders)};
}

absl::StatusOr<uint32_t> ModelImages::Placeholders(uint32_t height,
                                                   uint32_t width,
                                                   uint32_t images) const {
  BALLAST_ASSIGN_OR_RETURN(const ImagePlan plan,
                           planner_.Plan(height, width, images));
  BALLAST_RETURN_IF_ERROR(CheckCanvases(plan));
  return static_cast<uint32_t>(plan.placeholders);
}

bool ModelImages::MayTravelEncoded(uint32_t height, uint32_t width,
                                   const ImageGrid& grid) const {
  return !IsResizedAlongYFirst(GetLibrary(resample_), width, height, grid.width,
                               grid.height);
}

bool IsOneResize(const ImagePlan& plan, uint32_t height, uint32_t width) {
  if (plan.stages.size() != 1) return false;
  const PlanStage& stage = plan.stages[0];
  const PixelRect canvas = {0, 0, stage.height, stage.width};
  return stage.source == PlanStage::kDecodedImage && stage.rows == 1 &&
         stage.columns == 1 && stage.from == PixelRect{0, 0, height, width} &&
         stage.place == canvas && stage.crop == canvas;
}

}  // namespace ballast
