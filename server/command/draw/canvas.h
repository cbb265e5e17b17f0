#ifndef BALLAST_SERVER_COMMAND_DRAW_CANVAS_H_
#define BALLAST_SERVER_COMMAND_DRAW_CANVAS_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/random.h"

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

// ---- What a camera or a scanner adds to a drawing. Equal calls give equal
// pixels on every processor; blurs and warps run on the calling thread.

// Lights the picture unevenly: each place keeps from `darkest` (0..255) to all
// of its brightness, smoothly over the picture.
void LightUnevenly(int darkest, Random* look, Canvas* canvas);

// Darkens a form by `darkness` (0..255), with edges that fade over about `blur`
// pixels.
void CastShadow(Form form, const Box& box, int darkness, int blur,
                Canvas* canvas);

// Brightens each pixel row of a form by amounts from `top` to `bottom`, which
// may be negative; 255 is the brightness of white.
void LightForm(Form form, const Box& box, int top, int bottom, Canvas* canvas);

// Blurs over 2*radius + 1 pixels with Gaussian weights.
void Blur(int radius, Canvas* canvas);

// New places of a picture's corners, in 1/1000 of its sides towards its centre;
// less than 0 is out of the picture.
struct Corners {
  int top_left[2];
  int top_right[2];
  int bottom_right[2];
  int bottom_left[2];
};

// Draws each of the eight numbers from [low, high].
Corners DrawCorners(int low, int high, Random* look);

// Views the picture from an angle: moves its corners, straight lines stay
// straight. Then bends it sidewards by up to `bend` pixels half way down.
// `outside` is the colour beyond the picture.
void Warp(const Corners& corners, int bend, Rgb outside, Canvas* canvas);

// The same without bend, where the picture's edges continue beyond it.
void Warp(const Corners& corners, Canvas* canvas);

// Adds a random grey level from -amplitude..amplitude-1 to each pixel, like the
// grain of a film. `amplitude` is 1, 2, 4 or 8.
void AddGrain(int amplitude, Random* random, Canvas* canvas);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_CANVAS_H_
