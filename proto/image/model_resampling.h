#ifndef BALLAST_PROTO_IMAGE_MODEL_RESAMPLING_H_
#define BALLAST_PROTO_IMAGE_MODEL_RESAMPLING_H_

#include <cstdint>

#include "proto/image/resample_weights.h"
#include "proto/model.pb.h"

namespace ballast {

// The library of model.resample. `fast` and an unset value mean Pillow 12.
constexpr ResampleLibrary GetLibrary(v1::Model::Resample resample) {
  switch (resample) {
    case v1::Model::RESAMPLE_PILLOW13:
      return ResampleLibrary::kPillow13;
    case v1::Model::RESAMPLE_TORCHVISION:
      return ResampleLibrary::kTorchvision;
    default:
      return ResampleLibrary::kPillow12;
  }
}

// The filter of model.image_family.filter. An unset value means bicubic.
constexpr ResampleFilter GetFilter(v1::ImageFamily::Filter filter) {
  switch (filter) {
    case v1::ImageFamily::FILTER_BILINEAR:
      return ResampleFilter::kBilinear;
    case v1::ImageFamily::FILTER_LANCZOS:
      return ResampleFilter::kLanczos;
    case v1::ImageFamily::FILTER_BOX:
      return ResampleFilter::kBox;
    default:
      return ResampleFilter::kBicubic;
  }
}

// How the images of a job's model are resized. Qwen's models have no family;
// their images use bicubic.
inline Resampling GetResampling(const v1::Model& model) {
  return {GetFilter(model.image_family().filter()),
          GetLibrary(model.resample())};
}

// True if the library resizes along y before x. The order matters because
// pixels are rounded in between. Pillow 12 begins with y for images over a
// hundred times as high as wide whose height shrinks. Pillow 13 begins with y
// if the height shrinks by more than twice as many pixels as the width; a width
// that grows counts as a negative shrinkage. torchvision always begins with x.
constexpr bool IsResizedAlongYFirst(ResampleLibrary library, uint32_t width,
                                    uint32_t height, uint32_t new_width,
                                    uint32_t new_height) {
  if (new_height >= height) return false;
  switch (library) {
    case ResampleLibrary::kPillow12:
      return height > uint64_t{100} * width;
    case ResampleLibrary::kPillow13:
      return int64_t{height} - int64_t{new_height} >
             2 * (int64_t{width} - int64_t{new_width});
    case ResampleLibrary::kTorchvision:
      break;
  }
  return false;
}

}  // namespace ballast

#endif  // BALLAST_PROTO_IMAGE_MODEL_RESAMPLING_H_
