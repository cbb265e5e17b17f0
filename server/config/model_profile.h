#ifndef BALLAST_SERVER_CONFIG_MODEL_PROFILE_H_
#define BALLAST_SERVER_CONFIG_MODEL_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace ballast {

// Fills every field of `model` that is unset (zero or empty) from the profile
// that it names, and checks that with no profile nothing is missing. The
// profiles are those that the released checkpoints name:
//   qwen2_vl, qwen2_5_vl: patch 14, 3136..12845056 pixels, CLIP mean and
//                         deviation, image token 151655
//   qwen3_vl:             patch 16, 65536..16777216 pixels, mean and deviation
//                         0.5, image token 151655
//   qwen3_5_vl:           as qwen3_vl, image token 248056
// Errors: INVALID_ARGUMENT naming the unknown profile or the missing keys.
absl::Status ApplyModelProfile(v1::Model* model);

// The names that Model.profile may hold.
std::vector<std::string> ModelProfileNames();

// The keys that are unset in `model` and that a profile would fill, as
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

// The size that the Qwen-VL processors resize an image of height*width to:
// multiples of patch*merge within min_pixels..max_pixels (smart_resize of
// transformers, rounding half to even). `model` is a complete one. Errors:
// INVALID_ARGUMENT (a side of 0 or above 2^26, sides in a ratio above 200, a
// model that is not complete).
absl::StatusOr<ImageGrid> ResizedGrid(uint32_t height, uint32_t width,
                                      const v1::Model& model);

// Placeholder tokens of an image of that grid: patches / merge^2.
uint32_t ImageTokens(const ImageGrid& grid, const v1::Model& model);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_MODEL_PROFILE_H_
