#ifndef BALLAST_SERVER_COMMAND_DRAW_CANVAS_H_
#define BALLAST_SERVER_COMMAND_DRAW_CANVAS_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/command/draw/font.h"
#include "server/command/draw/random.h"

namespace ballast {

struct Rgb {
  uint8_t r, g, b;
};

// A rectangle of pixels: its top left corner and its size.
struct Box {
  int x, y, width, height;
};

// An 8-bit RGB picture to draw on. (0, 0) is the top left pixel; whatever lies
// outside is clipped. Thread-compatible.
class Canvas {
 public:
  // Both sides are at least 1.
  Canvas(int width, int height, Rgb background);

  int width() const { return width_; }
  int height() const { return height_; }
  // Rows from the top, no gaps: height*width*3 bytes.
  const std::vector<uint8_t>& pixels() const { return pixels_; }

  void FillBox(const Box& box, Rgb color);
  // Draws the edge of `box`, `thickness` pixels inwards.
  void DrawFrame(const Box& box, int thickness, Rgb color);
  // Fill the largest ellipse, upright triangle and lozenge in `box`.
  void FillEllipse(const Box& box, Rgb color);
  void FillTriangle(const Box& box, Rgb color);
  void FillLozenge(const Box& box, Rgb color);
  // Fills the whole picture with a gradient from `top` to `bottom`.
  void FillGradient(Rgb top, Rgb bottom);

  // Draws one line of ASCII with its top left dot at (x, y); a dot is
  // scale*scale pixels.
  void DrawText(int x, int y, int scale, Rgb color, absl::string_view text);

  // Adds a random grey level from -amplitude..amplitude-1 to each pixel, like
  // the grain of a scan. `amplitude` is 1, 2, 4 or 8.
  void AddNoise(int amplitude, Random* random);

 private:
  // Fills [x_begin, x_end) of row y, clipped to the picture.
  void FillRow(int y, int x_begin, int x_end, Rgb color);

  int width_;
  int height_;
  std::vector<uint8_t> pixels_;
};

// The width of `text` in pixels, from its first dot to its last.
int TextWidth(absl::string_view text, int scale);

// The height of a capital above its baseline, in pixels.
inline int TextHeight(int scale) { return kCapitalHeight * scale; }

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_CANVAS_H_
