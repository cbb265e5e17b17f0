#ifndef BALLAST_TRAINER_SHIM_PIXEL_ARITHMETIC_H_
#define BALLAST_TRAINER_SHIM_PIXEL_ARITHMETIC_H_

#include <cstdint>

// Functions that host code and kernels share.
#ifdef __CUDACC__
#define BALLAST_HOST_DEVICE __host__ __device__
#else
#define BALLAST_HOST_DEVICE
#endif

// Arithmetic of pixels that host and kernels share. Pure.

namespace ballast {

// ---- From planes to RGB

// The integer arithmetic of libjpeg-turbo between planes and RGB: its "fancy"
// upsampling, a triangle filter, and its colour conversion.

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

// The numbers with which libswscale converts a video's samples to RGB, as its
// vector code does: 16 bits each, with 13 of fraction.
struct VideoColours {
  int16_t black, luma;  // luma that is black; what a step of luma counts
  int16_t red_cr, green_cb, green_cr, blue_cb;
};

// The upper half of a product of 16-bit numbers.
BALLAST_HOST_DEVICE inline int UpperProduct(int a, int b) {
  return (a * b) >> 16;
}

BALLAST_HOST_DEVICE inline Rgb VideoToRgb(int y, int cb, int cr,
                                          const VideoColours& colours) {
  const int luma = UpperProduct(8 * y - colours.black, colours.luma);
  cb = 8 * cb - 8 * 128;
  cr = 8 * cr - 8 * 128;
  return {ClipToByte(luma + UpperProduct(cr, colours.red_cr)),
          ClipToByte(luma + UpperProduct(cb, colours.green_cb) +
                     UpperProduct(cr, colours.green_cr)),
          ClipToByte(luma + UpperProduct(cb, colours.blue_cb))};
}

// ---- Words of a crop

// The pixels of a crop, read as words of four bytes. A kernel may read them so
// if every line begins at a multiple of four bytes.

// Whether every line of a crop begins at a word, given that the launch's pixels
// do. `pixel_offset`: bytes from the launch's pixels to the crop's. A line is
// 3*width bytes, which is whole words only if the width is a multiple of 4.
BALLAST_HOST_DEVICE inline bool LinesAreWords(uint64_t pixel_offset,
                                              uint32_t width) {
  return pixel_offset % 4 == 0 && width % 4 == 0;
}

// Index, among a crop's words, of word `word` of patch `number`. Patches are
// counted in raster order, the words of a patch of kP pixels a side likewise.
// The lines of a crop of `width` pixels may be longer than its `grid_w`
// patches. Wants LinesAreWords().
template <int kP>
BALLAST_HOST_DEVICE inline uint64_t WordOfPatch(uint64_t number, uint32_t word,
                                                uint32_t grid_w,
                                                uint32_t width) {
  static_assert(kP % 4 == 0);
  constexpr uint32_t kWordsOfLine = 3 * kP / 4;
  const uint64_t line = uint64_t{width} / 4 * 3;
  const uint64_t y = number / grid_w * kP + word / kWordsOfLine;
  return y * line + number % grid_w * kWordsOfLine + word % kWordsOfLine;
}

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_PIXEL_ARITHMETIC_H_
