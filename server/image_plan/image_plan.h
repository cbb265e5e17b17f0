#ifndef BALLAST_SERVER_IMAGE_PLAN_IMAGE_PLAN_H_
#define BALLAST_SERVER_IMAGE_PLAN_IMAGE_PLAN_H_

#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"

namespace ballast {

// A rectangle of pixels.
struct PixelRect {
  uint32_t top = 0;
  uint32_t left = 0;
  uint32_t height = 0;
  uint32_t width = 0;

  friend bool operator==(const PixelRect&, const PixelRect&) = default;
};

// One picture on the way from the decoded image to its crops: a part of its
// source, resized and placed on a canvas, then cut into crops.
struct PlanStage {
  static constexpr int kDecodedImage = -1;

  int source = kDecodedImage;  // or an earlier stage
  PixelRect from;              // of the source
  // Where `from` lies on the canvas, after resizing to this size.
  PixelRect place;
  uint32_t height = 0;  // of the canvas
  uint32_t width = 0;
  std::array<uint8_t, 3> background = {0, 0, 0};  // RGB around `place`
  // The crops: `rows` x `columns` adjacent ones, row by row, the first at
  // `crop`. None: the stage is only a source.
  PixelRect crop;
  uint32_t rows = 0;
  uint32_t columns = 0;
};

// Crops, patches and tokens of an image of one size: a pure function of the
// family's numbers and the image's sides (ImagePlanner).
struct ImagePlan {
  // The crops are those of the stages in order.
  absl::InlinedVector<PlanStage, 5> stages;
  // The tiles among them; 0 where the image is not cut.
  uint32_t tile_rows = 0;
  uint32_t tile_columns = 0;
  uint32_t crops = 0;
  // Patches of all crops. Padding counts where the model sees it (tiles), not
  // where it is masked (padded patches).
  uint64_t patches = 0;
  // Tokens that the image takes in the text, as the family's processor counts
  // them: placeholders, newlines, and start and end where it writes them. Marks
  // that are written as text (row and column of a tile) are not counted.
  uint64_t tokens = 0;
  // Placeholders among them: the tokens that the model replaces by the image's
  // features.
  uint64_t placeholders = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_PLAN_IMAGE_PLAN_H_
