#ifndef BALLAST_SERVER_IMAGE_PLAN_FIT_RULES_H_
#define BALLAST_SERVER_IMAGE_PLAN_FIT_RULES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/image_plan/image_family.h"

// The rules that fit a whole image into one crop: its size after resizing. All
// are pure, take sides of 1 to ImagePlanner::kMaxSide and repeat the operations
// of Python's functions in their order, so that every intermediate value is
// rounded alike. Errors: INVALID_ARGUMENT for an image that the Python function
// refuses or would resize to nothing.
namespace ballast {

// Multiples of `factor` whose area is within min_pixels..max_pixels
// (smart_resize of the Qwen-VL processors, rounding half to even).
absl::StatusOr<TileShape> SmartResize(uint32_t height, uint32_t width,
                                      uint64_t factor, uint64_t min_pixels,
                                      uint64_t max_pixels);

// As SmartResize for the area of `frames` frames; first enlarges an image with
// a side below `factor`.
absl::StatusOr<TileShape> SmartResizeFrames(uint32_t height, uint32_t width,
                                            uint32_t frames, uint32_t factor,
                                            uint64_t min_pixels,
                                            uint64_t max_pixels);

// ImageRule::kFillBudget, kFitBudget and kLongestEdge.
absl::StatusOr<TileShape> FillBudget(uint32_t height, uint32_t width,
                                     const ImageFamily& family);
TileShape FitBudget(uint32_t height, uint32_t width, const ImageFamily& family);
absl::StatusOr<TileShape> FitLongestEdge(uint32_t height, uint32_t width,
                                         const ImageFamily& family);

// ImageRule::kShrinkAndPad, before padding.
TileShape ShrinkToBudget(uint32_t height, uint32_t width,
                         const ImageFamily& family);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_PLAN_FIT_RULES_H_
