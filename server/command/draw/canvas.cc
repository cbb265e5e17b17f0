#include "server/command/draw/canvas.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace ballast {
namespace {

uint8_t Mix(uint8_t a, uint8_t b, int part, int whole) {
  return static_cast<uint8_t>((a * (whole - part) + b * part) / whole);
}

}  // namespace

Canvas::Canvas(int width, int height, Rgb background)
    : width_(width),
      height_(height),
      pixels_(size_t{3} * static_cast<size_t>(width) *
              static_cast<size_t>(height)) {
  FillBox({0, 0, width, height}, background);
}

void Canvas::FillRow(int y, int x_begin, int x_end, Rgb color) {
  if (y < 0 || y >= height_) return;
  x_begin = std::max(x_begin, 0);
  x_end = std::min(x_end, width_);
  if (x_begin >= x_end) return;
  uint8_t* pixel =
      pixels_.data() + 3 * (static_cast<size_t>(y) * width_ + x_begin);
  for (int x = x_begin; x < x_end; ++x) {
    *pixel++ = color.r;
    *pixel++ = color.g;
    *pixel++ = color.b;
  }
}

void Canvas::FillBox(const Box& box, Rgb color) {
  for (int y = box.y; y < box.y + box.height; ++y) {
    FillRow(y, box.x, box.x + box.width, color);
  }
}

void Canvas::DrawFrame(const Box& box, int thickness, Rgb color) {
  const int right = box.x + box.width - thickness;
  const int bottom = box.y + box.height - thickness;
  FillBox({box.x, box.y, box.width, thickness}, color);
  FillBox({box.x, bottom, box.width, thickness}, color);
  FillBox({box.x, box.y, thickness, box.height}, color);
  FillBox({right, box.y, thickness, box.height}, color);
}

void Canvas::FillEllipse(const Box& box, Rgb color) {
  for (int row = 0; row < box.height; ++row) {
    // dy runs from -1 at the top to 1 at the bottom. sqrt is exact on every
    // platform.
    const double dy = (2.0 * row + 1.0) / box.height - 1.0;
    const double half = 0.5 * box.width * std::sqrt(1.0 - dy * dy);
    const double centre = box.x + 0.5 * box.width;
    FillRow(box.y + row, static_cast<int>(std::lround(centre - half)),
            static_cast<int>(std::lround(centre + half)), color);
  }
}

void Canvas::FillTriangle(const Box& box, Rgb color) {
  for (int row = 0; row < box.height; ++row) {
    const int width = box.width * (row + 1) / box.height;
    const int begin = box.x + (box.width - width) / 2;
    FillRow(box.y + row, begin, begin + width, color);
  }
}

void Canvas::FillLozenge(const Box& box, Rgb color) {
  for (int row = 0; row < box.height; ++row) {
    const int from_edge = std::min(row, box.height - 1 - row) + 1;
    const int width = std::min(
        box.width, 2 * box.width * from_edge / std::max(box.height, 1));
    const int begin = box.x + (box.width - width) / 2;
    FillRow(box.y + row, begin, begin + width, color);
  }
}

void Canvas::FillGradient(Rgb top, Rgb bottom) {
  for (int y = 0; y < height_; ++y) {
    FillRow(y, 0, width_,
            {Mix(top.r, bottom.r, y, height_), Mix(top.g, bottom.g, y, height_),
             Mix(top.b, bottom.b, y, height_)});
  }
}

void Canvas::DrawText(int x, int y, int scale, Rgb color,
                      absl::string_view text) {
  for (const char character : text) {
    const Glyph& glyph = GlyphOf(character);
    for (int row = 0; row < kGlyphHeight; ++row) {
      for (int column = 0; column < kGlyphWidth; ++column) {
        if ((glyph[row] >> (kGlyphWidth - 1 - column) & 1) == 0) continue;
        FillBox({x + column * scale, y + row * scale, scale, scale}, color);
      }
    }
    x += kGlyphAdvance * scale;
  }
}

void Canvas::AddNoise(int amplitude, Random* random) {
  uint64_t bits = 0;
  const int mask = 2 * amplitude - 1;
  const size_t count = pixels_.size() / 3;
  for (size_t i = 0; i < count; ++i) {
    // One random number has four bits for each of sixteen pixels.
    if (i % 16 == 0) bits = random->Next();
    const int grain = static_cast<int>(bits & 15 & mask) - amplitude;
    bits >>= 4;
    uint8_t* pixel = pixels_.data() + 3 * i;
    for (int c = 0; c < 3; ++c) {
      pixel[c] = static_cast<uint8_t>(std::clamp(pixel[c] + grain, 0, 255));
    }
  }
}

int TextWidth(absl::string_view text, int scale) {
  if (text.empty()) return 0;
  return (static_cast<int>(text.size()) * kGlyphAdvance - 1) * scale;
}

}  // namespace ballast
