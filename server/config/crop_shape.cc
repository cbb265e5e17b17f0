#include "server/config/crop_shape.h"

#include "server/config/profiles.h"
#include "server/image_plan/family_check.h"

namespace ballast {

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
  const ImageFamily family = GetImageFamily(model);
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
