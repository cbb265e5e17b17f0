#ifndef BALLAST_SERVER_COMMAND_DRAW_CANVAS_H_
#define BALLAST_SERVER_COMMAND_DRAW_CANVAS_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/string_view.h"

// canvas.cc and users who draw on the matrix themselves include OpenCV's
// headers.
namespace cv {
class Mat;
}

namespace ballast {

struct Rgb {
  uint8_t r, g, b;
};

// A rectangle of pixels: its top left corner and its size.
struct Box {
  int x, y, width, height;
};

// The base of a triangle is at the bottom.
enum class Form { kEllipse, kTriangle, kRectangle, kLozenge };

// The grid on which pages are laid out, in units of a `scale` in pixels: a
// character takes kCharacterWidth on average, a capital is kCapitalHeight high,
// and lines follow each other at kLineAdvance.
inline constexpr int kCharacterWidth = 6;
inline constexpr int kCapitalHeight = 7;
inline constexpr int kLineAdvance = 10;

// The fonts are proportional.
enum class Face { kSans, kSansBold, kSerif, kSerifBold };

struct Type {
  int scale = 1;
  Face face = Face::kSans;
};

// An 8-bit RGB picture that OpenCV draws on. (0, 0) is the top left pixel;
// anything outside is clipped, and edges are smooth. Uses only OpenCV's integer
// arithmetic on the calling thread, so that equal calls give equal pixels on
// every processor. Thread-compatible.
class Canvas {
 public:
  // Both sides are at least 1.
  Canvas(int width, int height, Rgb background);
  // Draws on RGB rows without gaps: height*width*3 bytes.
  Canvas(std::vector<uint8_t> pixels, int width, int height);

  int width() const { return width_; }
  int height() const { return height_; }
  // Rows from the top, no gaps: height*width*3 bytes.
  const std::vector<uint8_t>& pixels() const { return pixels_; }
  // The same, to write.
  uint8_t* data() { return pixels_.data(); }

  void FillBox(const Box& box, Rgb color);
  // Draws the edge of `box`, `thickness` pixels inwards.
  void DrawFrame(const Box& box, int thickness, Rgb color);
  // Draws a line from the top left to the bottom right of `box`; its width may
  // be negative.
  void DrawLine(const Box& box, int thickness, Rgb color);
  // Fills the largest such form that fits in `box`.
  void FillForm(Form form, const Box& box, Rgb color);
  // Fills the whole picture with a gradient from `top` to `bottom`.
  void FillGradient(Rgb top, Rgb bottom);

  // Draws one line of ASCII with the top of its capitals at y and its left end
  // at x; other characters become question marks. A text that is wider than
  // `room` pixels is drawn smaller.
  void DrawText(int x, int y, const Type& type, Rgb color,
                absl::string_view text,
                int room = std::numeric_limits<int>::max());

 private:
  int width_;
  int height_;
  std::vector<uint8_t> pixels_;
};

// The width of `text` in pixels.
int TextWidth(absl::string_view text, const Type& type);

// The height of a capital above its baseline, in pixels.
inline int TextHeight(int scale) { return kCapitalHeight * scale; }

// Makes OpenCV run each call on the thread that makes it, in the whole program.
// Code that calls OpenCV without a canvas must call this first. Safe to repeat,
// from any thread.
void KeepOpenCvOnOneThread();

// The pixels of a canvas for OpenCV, in the order R, G, B. Valid as long as the
// canvas lives and is not moved.
cv::Mat GetMat(Canvas* canvas);

// As Canvas::FillForm, in a matrix of 8 bits and up to three channels, the
// first of which is `color.r`.
void FillFormIn(Form form, const Box& box, Rgb color, cv::Mat* mat);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_CANVAS_H_
