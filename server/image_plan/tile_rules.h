#ifndef BALLAST_SERVER_IMAGE_PLAN_TILE_RULES_H_
#define BALLAST_SERVER_IMAGE_PLAN_TILE_RULES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/image_plan/image_family.h"
#include "server/image_plan/image_plan.h"

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
                        const ImageFamily& family);
ImagePlan PlanLongestEdgeTiles(uint32_t height, uint32_t width,
                               const ImageFamily& family);
// Errors: INVALID_ARGUMENT for an image of which a view would have no height or
// no width.
absl::StatusOr<ImagePlan> PlanSlices(uint32_t height, uint32_t width,
                                     const ImageFamily& family);

// The grids of kTileGrid and kBestFitTiles, in their order of preference.
std::vector<TileShape> TileGrids(const ImageFamily& family);
std::vector<TileShape> BestFitGrids(const ImageFamily& family);

ImagePlan PlanTileGrid(uint32_t height, uint32_t width,
                       const ImageFamily& family,
                       absl::Span<const TileShape> grids);
ImagePlan PlanBestFitTiles(uint32_t height, uint32_t width,
                           const ImageFamily& family,
                           absl::Span<const TileShape> grids);

// The tokens of a kPinpoints image: its thumbnail, its canvas without padding,
// and a newline after each row.
uint64_t PinpointTokens(uint32_t height, uint32_t width,
                        const ImageFamily& family, const ImagePlan& plan);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_PLAN_TILE_RULES_H_
