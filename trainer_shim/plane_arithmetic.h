#ifndef BALLAST_TRAINER_SHIM_PLANE_ARITHMETIC_H_
#define BALLAST_TRAINER_SHIM_PLANE_ARITHMETIC_H_

#include <cstdint>

#include "trainer_shim/host_device.h"

namespace ballast {

// The integer arithmetic of libjpeg-turbo between planes and RGB: its "fancy"
// upsampling, a triangle filter, and its colour conversion. Pure.

// libjpeg repeats samples instead if a row of chroma is this short.
inline constexpr uint32_t kMaxRepeatedWidth = 2;

// A value of chroma at a pixel, from the sample that covers it and the samples
// next to that on the pixel's side; at an edge these are the covering sample
// itself.
//
// 4:2:2: `near` covers the pixel, `far` is next to it.
BALLAST_HOST_DEVICE inline int UpsampledAcross(int near, int far, bool right) {
  return (3 * near + far + (right ? 2 : 1)) >> 2;
}
// 4:2:0: sums of a column, 3 * the row that covers the pixel + the row above or
// below.
BALLAST_HOST_DEVICE inline int ColumnSum(int near, int far) {
  return 3 * near + far;
}
BALLAST_HOST_DEVICE inline int UpsampledBoth(int near_sum, int far_sum,
                                             bool right) {
  return (3 * near_sum + far_sum + (right ? 7 : 8)) >> 4;
}

BALLAST_HOST_DEVICE inline uint8_t ClipToByte(int value) {
  return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

struct Rgb {
  uint8_t r, g, b;
};

// libjpeg's tables as formulas, with 16 bits of fraction.
BALLAST_HOST_DEVICE inline Rgb YccToRgb(int y, int cb, int cr) {
  constexpr int kHalf = 1 << 15;
  cb -= 128;
  cr -= 128;
  return {ClipToByte(y + ((91881 * cr + kHalf) >> 16)),
          ClipToByte(y + ((-22554 * cb - 46802 * cr + kHalf) >> 16)),
          ClipToByte(y + ((116130 * cb + kHalf) >> 16))};
}

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_PLANE_ARITHMETIC_H_
