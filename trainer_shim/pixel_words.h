#ifndef BALLAST_TRAINER_SHIM_PIXEL_WORDS_H_
#define BALLAST_TRAINER_SHIM_PIXEL_WORDS_H_

#include <cstdint>

#include "trainer_shim/host_device.h"

namespace ballast {

// The pixels of a crop, read as words of four bytes. A kernel may read them so
// if every line begins at a multiple of four bytes. Pure; host and kernels
// share the functions.

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

#endif  // BALLAST_TRAINER_SHIM_PIXEL_WORDS_H_
