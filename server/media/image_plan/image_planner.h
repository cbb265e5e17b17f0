#ifndef BALLAST_SERVER_MEDIA_IMAGE_PLAN_IMAGE_PLANNER_H_
#define BALLAST_SERVER_MEDIA_IMAGE_PLAN_IMAGE_PLANNER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/media/image_plan/image_family.h"
#include "server/media/image_plan/tile_grid.h"

namespace ballast {

// The rules that fit a whole image into one crop: its size after resizing. All
// are pure, take sides of 1 to ImagePlanner::kMaxSide and repeat the operations
// of Python's functions in their order, so that every intermediate value is
// rounded alike. Errors: INVALID_ARGUMENT for an image that the Python function
// refuses or would resize to nothing.

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

// Plans images of one family. Immutable, so that threads may share it.
class ImagePlanner {
 public:
  // The longest side that can be planned.
  static constexpr uint32_t kMaxSide = uint32_t{1} << 26;

  // Errors: INVALID_ARGUMENT naming the number that the family's rule lacks or
  // cannot take.
  static absl::StatusOr<ImagePlanner> Create(ImageFamily family);

  // The crops, patches and tokens of an image of height*width pixels in a
  // sample of `images` images: the same on every machine. Allocates nothing for
  // plans of at most five stages. Errors: INVALID_ARGUMENT for an image that
  // the family's processor refuses or would resize to nothing, or with a side
  // of 0 or above kMaxSide.
  absl::StatusOr<ImagePlan> Plan(uint32_t height, uint32_t width,
                                 uint32_t images = 1) const;

  const ImageFamily& family() const { return family_; }

 private:
  explicit ImagePlanner(ImageFamily family);

  absl::StatusOr<ImagePlan> MakeStages(uint32_t height, uint32_t width,
                                       uint32_t images) const;

  ImageFamily family_;
  // For the rule that chooses among them; the others are empty.
  std::vector<TileGrids> tile_grids_;  // by the images of a sample, from 1
  Canvases canvases_;
  SliceGrids slice_grids_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_PLAN_IMAGE_PLANNER_H_
