#include "server/config/crop_shape.h"

#include "server/config/image_family_config.h"

namespace ballast {

bool HasSquareCrops(const ImageFamily& family) {
  switch (family.rule) {
    case ImageRule::kFixedSize:
    case ImageRule::kCenterCrop:
    case ImageRule::kPadSquare:
    case ImageRule::kPinpoints:
    case ImageRule::kTileGrid:
    case ImageRule::kLongestEdgeTiles:
    case ImageRule::kBestFitTiles:
      return true;
    default:
      return false;
  }
}

v1::Model::ImageForm ImageFormOf(const ImageFamily& family) {
  switch (family.layout) {
    case PatchLayout::kCrops:
      return v1::Model::IMAGE_FORM_TILES;
    case PatchLayout::kMergeOrder:
      return v1::Model::IMAGE_FORM_MERGE_ORDER;
    case PatchLayout::kRasterPixels:
    case PatchLayout::kRasterBatch:
      return v1::Model::IMAGE_FORM_PADDED;
    case PatchLayout::kRasterOrder:
    case PatchLayout::kKimi:
    case PatchLayout::kStrips:
      break;
  }
  return v1::Model::IMAGE_FORM_RASTER;
}

v1::Job::CropShape CropShapeOf(const v1::Model& model) {
  v1::Job::CropShape shape;
  shape.set_dummy_grid_h(model.merge());
  shape.set_dummy_grid_w(model.merge());
  if (!model.has_image_family()) return shape;
  const ImageFamily family = FamilyOfConfig(model.image_family());
  if (HasSquareCrops(family)) {
    const uint32_t side = family.tile / family.patch;  // in patches
    shape.set_tile(family.tile);
    shape.set_margin(family.tile - side * family.patch);
    shape.set_dummy_grid_h(side);
    shape.set_dummy_grid_w(side);
  }
  if (model.image_form() == v1::Model::IMAGE_FORM_PADDED) {
    shape.set_max_patches(family.max_patches);
  }
  return shape;
}

}  // namespace ballast
