#include "server/command/preview/crop_overlay.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "common/status_macros.h"
#include "server/command/draw/canvas.h"
#include "server/config/model_images.h"

namespace ballast {
namespace {

constexpr Rgb kPatchEdge = {79, 184, 204};
constexpr Rgb kCropEdge = {236, 120, 30};

int Round(double place) { return static_cast<int>(std::lround(place)); }

// Draws an even grid of lines, without its edge.
void DrawGrid(const CropPlace& crop, int thickness, Canvas* canvas) {
  const int left = Round(crop.left), width = Round(crop.width);
  const int top = Round(crop.top), height = Round(crop.height);
  for (uint32_t i = 1; i < crop.grid_w; ++i) {
    const int x = Round(crop.left + crop.width * i / crop.grid_w);
    canvas->FillBox({x, top, thickness, height}, kPatchEdge);
  }
  for (uint32_t i = 1; i < crop.grid_h; ++i) {
    const int y = Round(crop.top + crop.height * i / crop.grid_h);
    canvas->FillBox({left, y, width, thickness}, kPatchEdge);
  }
}

}  // namespace

std::vector<CropPlace> PlacesOfCrops(const ImagePlan& plan) {
  std::vector<CropPlace> places;
  for (const PlanStage& stage : plan.stages) {
    for (uint32_t i = 0; i < stage.rows * stage.columns; ++i) {
      CropPlace crop;
      crop.width = stage.crop.width;
      crop.height = stage.crop.height;
      crop.left = stage.crop.left + i % stage.columns * crop.width;
      crop.top = stage.crop.top + i / stage.columns * crop.height;
      // From this stage's canvas back to the image.
      const PlanStage* at = &stage;
      while (true) {
        const double x = static_cast<double>(at->from.width) / at->place.width;
        const double y =
            static_cast<double>(at->from.height) / at->place.height;
        crop.left = at->from.left + (crop.left - at->place.left) * x;
        crop.top = at->from.top + (crop.top - at->place.top) * y;
        crop.width *= x;
        crop.height *= y;
        if (at->source == PlanStage::kDecodedImage) break;
        at = &plan.stages[at->source];
      }
      places.push_back(crop);
    }
  }
  return places;
}

absl::StatusOr<RgbImage> DrawCropsOn(RgbImage image, const v1::Model& model,
                                     uint32_t images) {
  BALLAST_ASSIGN_OR_RETURN(const ModelImages rules, ModelImages::Create(model));
  std::vector<ImageGrid> grids;
  BALLAST_RETURN_IF_ERROR(
      rules.Add(image.height, image.width, images, &grids).status());
  BALLAST_ASSIGN_OR_RETURN(
      const ImagePlan plan,
      rules.planner().Plan(image.height, image.width, images));
  std::vector<CropPlace> crops = PlacesOfCrops(plan);
  const int width = static_cast<int>(image.width);
  const int height = static_cast<int>(image.height);
  // Visible also where the page shows a large image smaller.
  const int thickness = std::max(1, std::max(width, height) / 1000);
  Canvas canvas(std::move(image.pixels), width, height);
  for (size_t i = 0; i < crops.size() && i < grids.size(); ++i) {
    crops[i].grid_h = grids[i].grid_h;
    crops[i].grid_w = grids[i].grid_w;
    DrawGrid(crops[i], thickness, &canvas);
  }
  for (const CropPlace& crop : crops) {
    const int left = Round(crop.left), top = Round(crop.top);
    canvas.DrawFrame({left, top, Round(crop.left + crop.width) - left,
                      Round(crop.top + crop.height) - top},
                     3 * thickness, kCropEdge);
  }
  image.pixels = canvas.pixels();
  return image;
}

}  // namespace ballast
