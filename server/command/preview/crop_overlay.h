#ifndef BALLAST_SERVER_COMMAND_PREVIEW_CROP_OVERLAY_H_
#define BALLAST_SERVER_COMMAND_PREVIEW_CROP_OVERLAY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "server/image/image.h"
#include "server/image_plan/image_plan.h"

namespace ballast {

// Place of a crop on the image that it was cut from, in the image's pixels.
// Parts outside the image are padding.
struct CropPlace {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
  uint32_t grid_h = 0;  // patches
  uint32_t grid_w = 0;
};

// The places of a plan's crops, in the plan's order. Their grids are 0.
std::vector<CropPlace> PlacesOfCrops(const ImagePlan& plan);

// Draws the crops that `model` makes of `image`, in a sample of `images`
// images, on it: their edges, and finer the edges of their patches. Errors: as
// ModelImages.
absl::StatusOr<RgbImage> DrawCropsOn(RgbImage image, const v1::Model& model,
                                     uint32_t images);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PREVIEW_CROP_OVERLAY_H_
