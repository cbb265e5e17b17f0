#ifndef BALLAST_SERVER_MEDIA_IMAGE_PLAN_TILE_GRID_H_
#define BALLAST_SERVER_MEDIA_IMAGE_PLAN_TILE_GRID_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "server/media/image_plan/image_family.h"

// The choices of a family's rule, prepared once: planning an image takes less
// time than looking at every grid.

namespace ballast {

struct RecipePlan;  // image_text.h

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
  // The place of `from` on the canvas, after resizing to this size.
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
// family's numbers and the image's sides (ImagePlanner), or what a recipe gave
// (ModelImages).
struct ImagePlan {
  // The crops are the stages' crops, in order.
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
  // Only of a plan by the model's recipe.
  std::shared_ptr<const RecipePlan> recipe;
};

// The grids of kTileGrid: min_tiles to `most` tiles.
class TileGrids {
 public:
  TileGrids(const ImageFamily& family, uint32_t most);

  // The grid whose ratio of columns to rows is nearest to width / height. Among
  // several, ordered by tiles and then by columns, the last that has fewer than
  // twice the image's pixels; else the first.
  TileShape Nearest(uint32_t height, uint32_t width) const;

 private:
  struct Grid {
    TileShape shape;
    size_t place = 0;  // in that order
    double half_pixels = 0;
  };

  std::vector<double> ratios_;  // ascending, without repetition
  // The grids of ratio i are [starts_[i], starts_[i + 1]), in that order.
  std::vector<size_t> starts_;
  std::vector<Grid> grids_;
};

// The canvases of kPinpoints.
class Canvases {
 public:
  Canvases() = default;
  explicit Canvases(const ImageFamily& family);

  // The canvas that keeps the most pixels of the image; among several the
  // smallest, and among equally large ones the first.
  TileShape Best(uint32_t height, uint32_t width) const;

 private:
  // A width of canvases, and the largest height that any of them has.
  struct Column {
    uint32_t width = 0;
    size_t last_height = 0;
  };

  std::vector<Column> columns_;     // by width, ascending
  std::vector<uint32_t> heights_;   // ascending
  std::vector<TileShape> by_area_;  // in order of area, then of preference
};

// The grids of kSlices.
class SliceGrids {
 public:
  SliceGrids() = default;
  explicit SliceGrids(const ImageFamily& family);

  // Among the grids of slices-1 to slices+1 slices (except one slice, and at
  // most the family's maximum): the grid whose logarithm of columns / rows is
  // nearest to log_ratio. Among several the first, or the one with more rows if
  // there is one. `slices` is 2 to the family's maximum.
  TileShape Nearest(uint32_t slices, double log_ratio) const;

 private:
  struct Grid {
    TileShape shape;
    double log_ratio = 0;
  };

  // The grids of n slices are [starts_[n], starts_[n + 1]), by rows.
  std::vector<size_t> starts_;
  std::vector<Grid> grids_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_PLAN_TILE_GRID_H_
