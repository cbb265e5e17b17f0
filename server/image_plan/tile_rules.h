#ifndef BALLAST_SERVER_IMAGE_PLAN_TILE_RULES_H_
#define BALLAST_SERVER_IMAGE_PLAN_TILE_RULES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/image_plan/image_family.h"
#include "server/image_plan/image_plan.h"
#include "server/image_plan/tile_grid.h"

// The rules that cut an image or a part of it: they fill the stages of a plan
// and its tile_rows and tile_columns. All are pure, take sides of 1 to
// ImagePlanner::kMaxSide and repeat the operations of Python's functions in
// their order, so that every intermediate value is rounded alike.
namespace ballast {

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
// Errors: INVALID_ARGUMENT for an image of which a view would have no height or
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

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_PLAN_TILE_RULES_H_
