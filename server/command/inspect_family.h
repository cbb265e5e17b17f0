#ifndef BALLAST_SERVER_COMMAND_INSPECT_FAMILY_H_
#define BALLAST_SERVER_COMMAND_INSPECT_FAMILY_H_

#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/image/resample_weights.h"
#include "server/image/image.h"
#include "server/image_plan/image_planner.h"

namespace ballast {

// Adds what the model of `planner` sees of the image file `bytes` to an object
// of `inspect image`: width, height, grid_thw (models of one crop that is cut
// into patches), tile_grid (rows and columns, if the image is cut),
// image_tokens, text if `with_text` (texts and lengths of runs of placeholders;
// empty for encoders), resample, rgb_sha256, and crops or patches. `decoder`
// decodes. Errors: as ImageDecoder::Decode, ImagePlanner::Plan and MakeCrops.
absl::Status InspectFamily(const ImagePlanner& planner, ResampleLibrary library,
                           bool with_text, absl::string_view bytes,
                           ImageDecoder& decoder,
                           nlohmann::ordered_json& object);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_FAMILY_H_
