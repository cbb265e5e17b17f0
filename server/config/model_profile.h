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

// Sets every unset (zero or empty) field of `model` from the profile that it
// names; without a profile, checks that no field is missing. The profiles have
// the values of the released checkpoints:
//   qwen2_vl, qwen2_5_vl: patch 14, 3136..12845056 pixels, CLIP mean and
//                         deviation, image token 151655
//   qwen3_vl:             patch 16, 65536..16777216 pixels, mean and deviation
//                         0.5, image token 151655
//   qwen3_5_vl:           as qwen3_vl, image token 248056
//   a family's name:      docs/families.md (FillFamily)
// Errors: INVALID_ARGUMENT naming the unknown profile or the missing keys.
absl::Status ApplyModelProfile(v1::Model* model);

// The values of Model.profile for Qwen's models; those of other families:
// FamilyProfileNames().
std::vector<std::string> ModelProfileNames();

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

// The size to which the Qwen-VL processors resize an image of height*width:
// multiples of patch*merge within min_pixels..max_pixels (smart_resize of
// transformers, rounding half to even). `model` is complete and has no image
// family (ModelImages). Errors:
// INVALID_ARGUMENT (a side of 0 or above 2^26, an aspect ratio above 200, an
// incomplete model).
absl::StatusOr<ImageGrid> ResizedGrid(uint32_t height, uint32_t width,
                                      const v1::Model& model);

// Number of placeholder tokens of an image of that grid: patches / merge^2.
uint32_t ImageTokens(const ImageGrid& grid, const v1::Model& model);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_MODEL_PROFILE_H_
