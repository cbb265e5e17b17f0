#ifndef BALLAST_SERVER_MEDIA_IMAGE_QUAD_KERNELS_H_
#define BALLAST_SERVER_MEDIA_IMAGE_QUAD_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/media/image/quad_table.h"

// The inner loops of resampling, for each instruction set that the compiler
// knows; the machine's best one is chosen at run time. All give the same bits:
// the exact sums, rounded and clipped as by ClipWeightedSum.
//
// Three layouts of 8-bit pixels, a "value" being one channel of one pixel:
//   strip  16 rows of RGB, top to bottom
//   tile   a strip transposed so that a quad of a row is one word and the 16
//          rows are adjacent: [quad of a row][channel][row][pixel of the quad]
//   line   4 rows, already resampled along x, transposed so that a quad of a
//          column is one word: [value of a row][row]
// All begin at multiples of 64 bytes. Every function is reentrant.
namespace ballast {

inline constexpr size_t kStripRows = 16;
inline constexpr size_t kChannels = 3;

constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Bytes between rows of a strip: kernels read slightly beyond a row. Odd
// multiples, so that rows do not share cache sets.
constexpr size_t StripStride(size_t width) {
  return RoundUp(RoundUp(width, 4) * kChannels + 16, 64) | 64;
}

// One quad more than the width needs: kernels read it and ignore it.
constexpr size_t TileBytes(size_t width) {
  return (RoundUp(width, 4) + 4) * kChannels * kStripRows;
}

// Kernels write slightly beyond the last value.
constexpr size_t LineBytes(size_t width) {
  return RoundUp(RoundUp(width, 4) * kChannels, 64) * 4;
}

// The table format that the kernels below need on this machine.
QuadFormat KernelFormat();

// The instruction set in use, by Highway's name.
absl::string_view KernelTarget();

// Transposes a strip into `tile`, TileBytes(width) bytes. Rows of `strip` are
// StripStride(width) apart. Columns from `width` on are unspecified.
void TileStrip(const uint8_t* strip, size_t width, uint8_t* tile);

// Resamples a tile along x into four lines of LineBytes(table.output()).
void ResampleTile(const uint8_t* tile, const QuadTable& table,
                  uint8_t* const (&lines)[4]);

// Resamples along y: row `i` of the table's output, out.size() values. `lines`
// begins with the line of the row's first quad and has taps.count + 1 lines;
// pixels without a weight may be anything.
void ResampleLines(const uint8_t* const* lines, const QuadTable& table,
                   uint32_t i, absl::Span<uint8_t> out);

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_QUAD_KERNELS_H_
