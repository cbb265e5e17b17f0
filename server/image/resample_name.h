#ifndef BALLAST_SERVER_IMAGE_RESAMPLE_NAME_H_
#define BALLAST_SERVER_IMAGE_RESAMPLE_NAME_H_

#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "proto/image/resample_weights.h"

namespace ballast {

// A library as `model.resample` and --resample name it.
constexpr absl::string_view ResampleName(ResampleLibrary library) {
  switch (library) {
    case ResampleLibrary::kPillow12:
      return "pillow12";
    case ResampleLibrary::kPillow13:
      return "pillow13";
    case ResampleLibrary::kTorchvision:
      break;
  }
  return "torchvision";
}

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

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_RESAMPLE_NAME_H_
