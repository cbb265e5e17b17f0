#ifndef BALLAST_SERVER_MODEL_MODEL_PROFILE_H_
#define BALLAST_SERVER_MODEL_MODEL_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "server/media/image_plan/image_family.h"

namespace ballast {

// The crops' numbers of a complete model that a rank needs besides the model.
v1::Job::CropShape GetCropShape(const v1::Model& model);

// The form of a batch's pixels that comes nearest to what the family's
// processor returns; model.image_form overrides it.
v1::Model::ImageForm GetImageForm(const ImageFamily& family);

// Sets every unset (zero or empty) field of `model` from its profile
// (profiles.h); without a profile, checks that no field is missing. Where the
// model's numbers do not describe its images (only Qwen's numbers do), sets
// image_family, too, and patch, merge, temporal_patch and the bounds of pixels
// from it: a given bound of pixels overrides the profile's. Token ids that
// neither the model nor the profile gives become -1: the tokenizer has them
// (OpenModelTokenizer). With an image_family of one's own, a profile of
// Qwen's gives neither mean, deviation and axes of positions nor ids.
//
// Errors: INVALID_ARGUMENT naming the unknown profile or the missing keys.
absl::Status ApplyModelProfile(v1::Model* model);

// Whether model.image_family replaces the images of a profile with token ids,
// of which mean, deviation, axes and ids then say nothing.
bool HasOtherImages(const v1::Model& model);

// The keys that a profile would set and that are unset in `model`, such as
// "min_pixels" or "token_ids.image". Empty for a complete model.
std::vector<std::string> MissingModelKeys(const v1::Model& model);

// An image's size after resizing, and its tokens.
struct ImageGrid {
  uint32_t height = 0;  // pixels
  uint32_t width = 0;
  uint32_t grid_h = 0;  // patches
  uint32_t grid_w = 0;
  uint64_t patches() const { return uint64_t{grid_h} * grid_w; }
};

// Number of placeholder tokens of an image of that grid: patches / merge^2.
uint32_t ImageTokens(const ImageGrid& grid, const v1::Model& model);

}  // namespace ballast

#endif  // BALLAST_SERVER_MODEL_MODEL_PROFILE_H_
