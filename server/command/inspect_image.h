#ifndef BALLAST_SERVER_COMMAND_INSPECT_IMAGE_H_
#define BALLAST_SERVER_COMMAND_INSPECT_IMAGE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/command_line.h"
#include "proto/config.pb.h"
#include "proto/image/resample_weights.h"
#include "server/image/image.h"
#include "server/image_plan/image_family.h"
#include "server/image_plan/image_planner.h"

namespace ballast {

// Adds `inspect image`, which prints sizes, tokens and pixel hashes of image
// files.
void AddInspectImage(CommandLine* line, Command* inspect);

// Runs the command on any files and stream: one JSON object a file, in order,
// with {file, width, height, resized_h, resized_w, grid_thw, image_tokens,
// rgb_sha256, resized_sha256}, or {file, error}. `model` is complete. Errors:
// INVALID_ARGUMENT after all files, with how many of them failed; UNAVAILABLE
// at once if `out` fails.
absl::Status InspectImages(const v1::Model& model,
                           absl::Span<const std::string> files,
                           std::ostream& out);

// Likewise for a family that is not Qwen's, with the keys of InspectFamily,
// `text` among them if `with_text`. Applies the EXIF
// orientation if `exif_orientation`.
absl::Status InspectFamilyImages(const ImagePlanner& planner,
                                 ResampleLibrary library, bool exif_orientation,
                                 bool with_text,
                                 absl::Span<const std::string> files,
                                 std::ostream& out);

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

// The 8-bit values of an image as its processor arranges them, before it
// normalises them.
struct PatchBytes {
  std::vector<uint64_t> shape;
  std::vector<uint8_t> values;
};

// Arranges the crops of one image. `family.layout` is not kCrops; the crops'
// sides are multiples of family.patch (and of patch*merge for kMergeOrder).
PatchBytes ArrangePatches(absl::Span<const RgbImage> crops,
                          const ImageFamily& family);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_IMAGE_H_
