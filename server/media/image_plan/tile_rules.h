#ifndef BALLAST_SERVER_MEDIA_IMAGE_PLAN_TILE_RULES_H_
#define BALLAST_SERVER_MEDIA_IMAGE_PLAN_TILE_RULES_H_

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "server/media/image_plan/image_family.h"
#include "server/media/image_plan/tile_grid.h"

// The rules that cut an image or a part of it: they fill the stages of a plan
// and its tile_rows and tile_columns. All are pure, take sides of 1 to
// ImagePlanner::kMaxSide and repeat the operations of Python's functions in
// their order, so that every intermediate value is rounded alike.

namespace ballast {

// smart_resize of the Qwen-VL processors, for an image or frames of a video.
// The sides become multiples of `factor`, rounding half to even.
struct SmartSize {
  SmartSize(uint32_t height, uint32_t width, double factor, double min_pixels,
            double max_pixels)
      : height(height),
        width(width),
        factor(factor),
        min_pixels(min_pixels),
        max_pixels(max_pixels) {}

  // Enlarges an image with a side below `factor`.
  void Enlarge();
  // Whether one side is over 200 times the other: the processors refuse it.
  bool IsTooLong() const;
  // Height and width after resizing. May be 0, or beyond any bound.
  std::array<double, 2> Resize() const;

  double height;  // before resizing
  double width;
  double factor;
  double min_pixels;  // of all frames
  double max_pixels;
  double frames = 1;
  double counted_frames = 1;  // as compared with the limits
  // Least sides after rounding, and after shrinking to max_pixels.
  double least = 0;
  double least_shrunk = 0;
};

ImagePlan PlanFixedSize(uint32_t height, uint32_t width,
                        const ImageFamily& family);
ImagePlan PlanCenterCrop(uint32_t height, uint32_t width,
                         const ImageFamily& family);
ImagePlan PlanPadSquare(uint32_t height, uint32_t width,
                        const ImageFamily& family);
ImagePlan PlanPinpoints(uint32_t height, uint32_t width,
                        const ImageFamily& family, const Canvases& canvases);
ImagePlan PlanLongestEdgeTiles(uint32_t height, uint32_t width,
                               const ImageFamily& family);
// Errors: INVALID_ARGUMENT for an image if a view of it would have no height or
// no width.
absl::StatusOr<ImagePlan> PlanSlices(uint32_t height, uint32_t width,
                                     const ImageFamily& family,
                                     const SliceGrids& grids);
ImagePlan PlanTileGrid(uint32_t height, uint32_t width,
                       const ImageFamily& family, const TileGrids& grids);
ImagePlan PlanBestFitTiles(uint32_t height, uint32_t width,
                           const ImageFamily& family);

// The tokens of a kPinpoints image: its thumbnail, its canvas without padding,
// and a newline after each row.
uint64_t PinpointTokens(uint32_t height, uint32_t width,
                        const ImageFamily& family, const ImagePlan& plan);

inline PixelRect Whole(uint32_t height, uint32_t width) {
  return {0, 0, height, width};
}

// Cuts the whole canvas of a stage into tiles.
inline void Cut(uint32_t tile_h, uint32_t tile_w, PlanStage& stage) {
  stage.crop = Whole(tile_h, tile_w);
  stage.rows = stage.height / tile_h;
  stage.columns = stage.width / tile_w;
}

// Python's int(): towards zero.
inline uint32_t Int(double value) { return static_cast<uint32_t>(value); }

inline uint32_t CeilTo(uint32_t value, uint32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A stage that resizes a rectangle of its source to one crop.
inline PlanStage WholeStage(const PixelRect& from, const TileShape& size) {
  PlanStage stage;
  stage.from = from;
  stage.place = Whole(size.height, size.width);
  stage.height = size.height;
  stage.width = size.width;
  Cut(size.height, size.width, stage);
  return stage;
}

// Cuts the canvas of `stage` into square tiles. Several tiles are followed by a
// thumbnail of one tile's size.
inline ImagePlan TilesAndThumbnail(PlanStage stage, uint32_t tile) {
  Cut(tile, tile, stage);
  ImagePlan plan;
  plan.stages.push_back(stage);
  if (stage.rows * stage.columns == 1) return plan;
  plan.tile_rows = stage.rows;
  plan.tile_columns = stage.columns;
  plan.stages.push_back(WholeStage(stage.from, {tile, tile}));
  return plan;
}

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_PLAN_TILE_RULES_H_
