#ifndef BALLAST_PROTO_IMAGE_RESIZE_ORDER_H_
#define BALLAST_PROTO_IMAGE_RESIZE_ORDER_H_

#include <cstdint>

#include "proto/image/resample_weights.h"

namespace ballast {

// True if the library resizes along y before x. The order matters because
// pixels are rounded in between. Pillow 12 begins with y for images over a
// hundred times as high as wide whose height shrinks. Pillow 13 begins with y
// if the height shrinks by more than twice the pixels by which the width does;
// a width that grows shrinks by less than 0. torchvision always begins with x.
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

#endif  // BALLAST_PROTO_IMAGE_RESIZE_ORDER_H_
