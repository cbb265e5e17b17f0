#ifndef BALLAST_SERVER_IMAGE_CROP_MAKER_H_
#define BALLAST_SERVER_IMAGE_CROP_MAKER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/image/resample_weights.h"
#include "server/image/image.h"
#include "server/image_plan/image_plan.h"

namespace ballast {

// An upper bound of the memory that MakeCrops takes for an image of this plan.
uint64_t CropBytes(const ImagePlan& plan, const Resampling& resampling);

// The crops of a decoded image, in the plan's order, bit for bit as the
// family's processor makes them with the library of `resampling`. `plan` is for
// an image of this size. Holds the canvases of the plan at once: three bytes a
// pixel. Errors: a data fault (a canvas of more than
// kMaxImagePixels); INVALID_ARGUMENT (`plan` is for another size); otherwise as
// Resize.
absl::StatusOr<std::vector<RgbImage>> MakeCrops(const RgbImage& image,
                                                const ImagePlan& plan,
                                                const Resampling& resampling);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_CROP_MAKER_H_
