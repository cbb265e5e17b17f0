#ifndef BALLAST_SERVER_COMMAND_DRAW_FONT_H_
#define BALLAST_SERVER_COMMAND_DRAW_FONT_H_

#include <array>
#include <cstdint>

namespace ballast {

// A bitmap font of the printable ASCII characters, in dots. A capital is 7
// high; two more rows below the baseline hold descenders.
inline constexpr int kGlyphWidth = 5;
inline constexpr int kCapitalHeight = 7;
inline constexpr int kGlyphHeight = 9;
// Distances from one character to the next, and from one line to the next.
inline constexpr int kGlyphAdvance = 6;
inline constexpr int kLineAdvance = 10;

// Rows from the top; bit 4 of a row is the leftmost dot.
using Glyph = std::array<uint8_t, kGlyphHeight>;

// Characters outside of 0x20..0x7e get the glyph of '?'.
const Glyph& GlyphOf(char character);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_FONT_H_
