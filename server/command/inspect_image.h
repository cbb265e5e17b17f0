#ifndef BALLAST_SERVER_COMMAND_INSPECT_IMAGE_H_
#define BALLAST_SERVER_COMMAND_INSPECT_IMAGE_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/command_line.h"
#include "proto/config.pb.h"
#include "proto/image/resample_weights.h"
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

// Likewise for a family that is not Qwen's, with the keys of InspectFamily
// (inspect_family.h), `text` among them if `with_text`. Applies the EXIF
// orientation if `exif_orientation`.
absl::Status InspectFamilyImages(const ImagePlanner& planner,
                                 ResampleLibrary library, bool exif_orientation,
                                 bool with_text,
                                 absl::Span<const std::string> files,
                                 std::ostream& out);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_IMAGE_H_
