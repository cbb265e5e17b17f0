#ifndef BALLAST_SERVER_IMAGE_RESAMPLE_NAME_H_
#define BALLAST_SERVER_IMAGE_RESAMPLE_NAME_H_

#include "absl/strings/string_view.h"
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

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_RESAMPLE_NAME_H_
