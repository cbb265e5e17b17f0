#ifndef BALLAST_SERVER_COMMAND_PREVIEW_CROP_OVERLAY_H_
#define BALLAST_SERVER_COMMAND_PREVIEW_CROP_OVERLAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "server/command/preview/sample_view.h"
#include "server/job/job_setup.h"
#include "server/media/image/image.h"
#include "server/media/image_plan/tile_grid.h"
#include "server/sample/image_header.h"

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

// Draws the crops that `model` makes of `image`, number `i` of `images`, on it:
// their edges, and finer the edges of their patches. Errors: as ModelImages.
absl::StatusOr<RgbImage> DrawCropsOn(RgbImage image, const ModelImages& model,
                                     const SampleImages& images, size_t i);

// The preview page's data, one JSON object each. Bytes that are not UTF-8
// become U+FFFD.

// model (the profile's name), splits [{name, positions (the first without data;
// null: they never end), sources [{name, samples}]}].
std::string JobJson(const OpenedJob& job);

// split, position, step, micro_batch, source, ordinal, name, file, offset,
// tokens, label_tokens, patches, fault (null, or why the sample cannot be
// built), modules [{module, cost, reader, owner}], images [{width, height,
// format, bytes} or {bytes, fault}]: as stored, crops [{width, height, grid_w,
// grid_h}]: as the trainer gets them, with the frames of videos, runs [{first,
// tokens, image, video, supervised, text}].
std::string ViewJson(const SampleView& view);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PREVIEW_CROP_OVERLAY_H_
