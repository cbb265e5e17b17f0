#ifndef BALLAST_PROTO_IMAGE_MODEL_RESAMPLING_H_
#define BALLAST_PROTO_IMAGE_MODEL_RESAMPLING_H_

#include "proto/image/resample_weights.h"
#include "proto/model.pb.h"

namespace ballast {

// The library of model.resample. `fast` and an unset value stand for Pillow 12.
constexpr ResampleLibrary LibraryOf(v1::Model::Resample resample) {
  switch (resample) {
    case v1::Model::RESAMPLE_PILLOW13:
      return ResampleLibrary::kPillow13;
    case v1::Model::RESAMPLE_TORCHVISION:
      return ResampleLibrary::kTorchvision;
    default:
      return ResampleLibrary::kPillow12;
  }
}

// The filter of model.image_family.filter. An unset value stands for bicubic.
constexpr ResampleFilter FilterOf(v1::ImageFamily::Filter filter) {
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

// How the images of a job's model are resized. Qwen's have no family, and are
// bicubic.
inline Resampling ResamplingOf(const v1::Model& model) {
  return {FilterOf(model.image_family().filter()), LibraryOf(model.resample())};
}

}  // namespace ballast

#endif  // BALLAST_PROTO_IMAGE_MODEL_RESAMPLING_H_
