#ifndef BALLAST_SERVER_IMAGE_PLAN_STAGE_PARTS_H_
#define BALLAST_SERVER_IMAGE_PLAN_STAGE_PARTS_H_

#include <cstdint>

#include "server/image_plan/image_family.h"
#include "server/image_plan/image_plan.h"

// The pieces that the rules build stages of.
namespace ballast {

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

#endif  // BALLAST_SERVER_IMAGE_PLAN_STAGE_PARTS_H_
