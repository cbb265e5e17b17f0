#include "server/media/image/png_filters.h"

#include <cstdlib>
#include <cstring>

namespace ballast {
namespace {

// Whichever of the three is nearest to left + above - corner.
int NearestOf(int left, int above, int corner) {
  const int to_left = std::abs(above - corner);
  const int to_above = std::abs(left - corner);
  const int to_corner = std::abs(left + above - 2 * corner);
  if (to_left <= to_above && to_left <= to_corner) return left;
  return to_above <= to_corner ? above : corner;
}

// `predict`: of left, above and corner.
template <class Predict>
void UndoBytes(size_t pixel, uint8_t* row, const uint8_t* above, size_t size,
               Predict predict) {
  for (size_t i = 0; i < pixel && i < size; ++i) {
    row[i] += static_cast<uint8_t>(predict(0, above[i], 0));
  }
  for (size_t i = pixel; i < size; ++i) {
    row[i] += static_cast<uint8_t>(
        predict(row[i - pixel], above[i], above[i - pixel]));
  }
}

// A pixel's bytes, each in a lane of 16 bits: vectors of GCC and Clang.
using Pixel = int16_t __attribute__((vector_size(16)));
using PixelBytes = uint8_t __attribute__((vector_size(8)));

#ifdef __x86_64__
// Without it, choosing between lanes takes twice the time.
#define BALLAST_PNG_TARGET __attribute__((target("sse4.1")))
bool HasVectors() { return __builtin_cpu_supports("sse4.1"); }
#else
#define BALLAST_PNG_TARGET
bool HasVectors() { return true; }
#endif

// Reads kBytes bytes, of which a pixel is the first ones.
template <size_t kBytes>
BALLAST_PNG_TARGET inline Pixel LoadPixel(const uint8_t* from) {
  PixelBytes bytes = {};
  std::memcpy(&bytes, from, kBytes);
  return __builtin_convertvector(bytes, Pixel);
}

// Writes the low byte of each lane.
template <size_t kBytes>
BALLAST_PNG_TARGET inline void StorePixel(Pixel pixel, uint8_t* to) {
  const PixelBytes bytes = __builtin_convertvector(pixel, PixelBytes);
  std::memcpy(to, &bytes, kBytes);
}

BALLAST_PNG_TARGET inline Pixel Abs(Pixel a) { return a > -a ? a : -a; }

// Undoes Paeth's filter. Each pixel waits for the one on its left, so what
// follows from `left` is short.
BALLAST_PNG_TARGET inline Pixel UndoPaeth(Pixel x, Pixel left, Pixel above,
                                          Pixel corner) {
  const Pixel down = above - corner;
  const Pixel right = left - corner;
  const Pixel to_left = Abs(down);
  const Pixel to_above = Abs(right);
  const Pixel to_corner = Abs(down + right);
  const Pixel other = to_above > to_corner ? x + corner : x + above;
  const Pixel nearer = to_above < to_corner ? to_above : to_corner;
  return (to_left > nearer ? other : x + left) & 0xff;
}

// `size`: whole pixels.
template <size_t kPixel>
BALLAST_PNG_TARGET void UndoPaethRow(uint8_t* row, const uint8_t* above,
                                     size_t size) {
  // Whole words of memory are faster than three or six bytes.
  constexpr size_t kWord = kPixel <= 4 ? 4 : 8;
  Pixel left = {};
  Pixel corner = {};
  size_t i = 0;
  if (size >= kPixel + kWord) {
    Pixel x = LoadPixel<kWord>(row);
    for (; i + kPixel + kWord <= size; i += kPixel) {
      const Pixel up = LoadPixel<kWord>(above + i);
      left = UndoPaeth(x, left, up, corner);
      // Before its first bytes are overwritten.
      x = LoadPixel<kWord>(row + i + kPixel);
      StorePixel<kWord>(left, row + i);
      corner = up;
    }
    StorePixel<kWord>(x, row + i);
  }
  for (; i < size; i += kPixel) {
    const Pixel up = LoadPixel<kPixel>(above + i);
    left = UndoPaeth(LoadPixel<kPixel>(row + i), left, up, corner);
    StorePixel<kPixel>(left, row + i);
    corner = up;
  }
}

void UndoPaethRow(size_t pixel, uint8_t* row, const uint8_t* above,
                  size_t size) {
  if (HasVectors()) {
    switch (pixel) {
      case 3:
        return UndoPaethRow<3>(row, above, size);
      case 4:
        return UndoPaethRow<4>(row, above, size);
      case 6:
        return UndoPaethRow<6>(row, above, size);
      case 8:
        return UndoPaethRow<8>(row, above, size);
      default:
        break;
    }
  }
  UndoBytes(pixel, row, above, size, NearestOf);
}

}  // namespace

bool Unfilter(uint8_t type, size_t pixel, uint8_t* row, const uint8_t* above,
              size_t size) {
  switch (type) {
    case 0:
      return true;
    case 1:
      UndoBytes(pixel, row, above, size,
                [](int left, int, int) { return left; });
      return true;
    case 2:
      for (size_t i = 0; i < size; ++i) row[i] += above[i];
      return true;
    case 3:
      UndoBytes(pixel, row, above, size,
                [](int left, int up, int) { return (left + up) / 2; });
      return true;
    case 4:
      UndoPaethRow(pixel, row, above, size);
      return true;
    default:
      return false;
  }
}

}  // namespace ballast
