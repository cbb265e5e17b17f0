#include "server/command/draw/canvas.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include <opencv2/core/parallel/parallel_backend.hpp>
#include <opencv2/core/utility.hpp>
#include <opencv2/imgproc.hpp>

namespace ballast {
namespace {

// Runs loops on the calling thread. OpenCV's own setting for one thread still
// asks TBB for its number of threads.
class OneThread final : public cv::parallel::ParallelForAPI {
 public:
  void parallel_for(int tasks, FN_parallel_for_body_cb_t body,
                    void* data) override {
    body(0, tasks, data);
  }
  int getThreadNum() const override { return 0; }
  int getNumThreads() const override { return 1; }
  int setNumThreads(int /*threads*/) override { return 1; }
  const char* getName() const override { return "one thread"; }
};

cv::Scalar GetScalar(Rgb color) {
  return cv::Scalar(color.r, color.g, color.b);
}

// OpenCV takes points in units of 1/16 pixel; (0, 0) is the centre of the first
// pixel.
constexpr int kShift = 4;

// A point of `box`, in halves of its width and height from its top left corner.
cv::Point PointIn(const Box& box, int x, int y) {
  return {16 * box.x + 8 * box.width * x - 8,
          16 * box.y + 8 * box.height * y - 8};
}

uint8_t Mix(uint8_t a, uint8_t b, int part, int whole) {
  return static_cast<uint8_t>((a * (whole - part) + b * part) / whole);
}

// A Hershey font, the height of its capitals, and the thickness of its lines.
struct Font {
  int face;
  double size;
  int thickness;
};

Font GetFont(const Type& type) {
  // Capitals of the Hershey fonts are 21 units high.
  const double size = kCapitalHeight * type.scale / 21.0;
  const int thickness = std::max(1, (type.scale + 1) / 2);
  switch (type.face) {
    case Face::kSans:
      return {cv::FONT_HERSHEY_SIMPLEX, size, thickness};
    case Face::kSansBold:
      return {cv::FONT_HERSHEY_DUPLEX, size, thickness};
    case Face::kSerif:
      return {cv::FONT_HERSHEY_COMPLEX, size, std::max(1, type.scale / 2)};
    case Face::kSerifBold:
      return {cv::FONT_HERSHEY_TRIPLEX, size, std::max(1, type.scale / 2)};
  }
  return {cv::FONT_HERSHEY_SIMPLEX, size, thickness};
}

std::string Printable(absl::string_view text) {
  std::string printable(text);
  for (char& character : printable) {
    if (character < ' ' || character > '~') character = '?';
  }
  return printable;
}

int WidthIn(const std::string& text, const Font& font) {
  int baseline = 0;
  return text.empty() ? 0
                      : cv::getTextSize(text, font.face, font.size,
                                        font.thickness, &baseline)
                            .width;
}

}  // namespace

void KeepOpenCvOnOneThread() {
  static const bool done = [] {
    cv::parallel::setParallelForBackend(std::make_shared<OneThread>(),
                                        /*propagateNumThreads=*/false);
    // 0: no loop is split.
    cv::setNumThreads(0);
    return true;
  }();
  static_cast<void>(done);
}

cv::Mat GetMat(Canvas* canvas) {
  KeepOpenCvOnOneThread();
  return cv::Mat(canvas->height(), canvas->width(), CV_8UC3, canvas->data());
}

void FillFormIn(Form form, const Box& box, Rgb color, cv::Mat* mat) {
  const cv::Scalar value = GetScalar(color);
  const auto fill = [&](std::initializer_list<cv::Point> corners) {
    cv::fillConvexPoly(*mat, std::data(corners),
                       static_cast<int>(corners.size()), value, cv::LINE_AA,
                       kShift);
  };
  switch (form) {
    case Form::kEllipse:
      cv::ellipse(*mat, PointIn(box, 1, 1), {8 * box.width, 8 * box.height}, 0,
                  0, 360, value, cv::FILLED, cv::LINE_AA, kShift);
      return;
    case Form::kTriangle:
      fill({PointIn(box, 1, 0), PointIn(box, 2, 2), PointIn(box, 0, 2)});
      return;
    case Form::kRectangle:
      fill({PointIn(box, 0, 0), PointIn(box, 2, 0), PointIn(box, 2, 2),
            PointIn(box, 0, 2)});
      return;
    case Form::kLozenge:
      fill({PointIn(box, 1, 0), PointIn(box, 2, 1), PointIn(box, 1, 2),
            PointIn(box, 0, 1)});
  }
}

Canvas::Canvas(int width, int height, Rgb background)
    : Canvas(std::vector<uint8_t>(size_t{3} * static_cast<size_t>(width) *
                                  static_cast<size_t>(height)),
             width, height) {
  GetMat(this).setTo(GetScalar(background));
}

Canvas::Canvas(std::vector<uint8_t> pixels, int width, int height)
    : width_(width), height_(height), pixels_(std::move(pixels)) {}

void Canvas::FillBox(const Box& box, Rgb color) {
  const cv::Rect inside = cv::Rect(box.x, box.y, box.width, box.height) &
                          cv::Rect(0, 0, width_, height_);
  if (!inside.empty()) GetMat(this)(inside).setTo(GetScalar(color));
}

void Canvas::DrawFrame(const Box& box, int thickness, Rgb color) {
  const int right = box.x + box.width - thickness;
  const int bottom = box.y + box.height - thickness;
  FillBox({box.x, box.y, box.width, thickness}, color);
  FillBox({box.x, bottom, box.width, thickness}, color);
  FillBox({box.x, box.y, thickness, box.height}, color);
  FillBox({right, box.y, thickness, box.height}, color);
}

void Canvas::DrawLine(const Box& box, int thickness, Rgb color) {
  cv::line(GetMat(this), {box.x, box.y},
           {box.x + box.width, box.y + box.height}, GetScalar(color), thickness,
           cv::LINE_AA);
}

void Canvas::FillForm(Form form, const Box& box, Rgb color) {
  cv::Mat mat = GetMat(this);
  FillFormIn(form, box, color, &mat);
}

void Canvas::FillGradient(Rgb top, Rgb bottom) {
  cv::Mat mat = GetMat(this);
  for (int y = 0; y < height_; ++y) {
    mat.row(y).setTo(GetScalar({Mix(top.r, bottom.r, y, height_),
                                Mix(top.g, bottom.g, y, height_),
                                Mix(top.b, bottom.b, y, height_)}));
  }
}

void Canvas::DrawText(int x, int y, const Type& type, Rgb color,
                      absl::string_view text, int room) {
  const std::string printable = Printable(text);
  Font font = GetFont(type);
  const int width = WidthIn(printable, font);
  if (width > room) font.size = font.size * room / width;
  cv::putText(GetMat(this), printable, {x, y + TextHeight(type.scale)},
              font.face, font.size, GetScalar(color), font.thickness,
              cv::LINE_AA);
}

int TextWidth(absl::string_view text, const Type& type) {
  return WidthIn(Printable(text), GetFont(type));
}

namespace {

// Points of light across and down.
constexpr int kLights = 4;
// Parts of a pixel that remap knows.
constexpr int kParts = cv::INTER_TAB_SIZE;

// 255 parts are the whole value.
uint8_t Scale(uint8_t value, uint8_t parts) {
  return static_cast<uint8_t>((value * parts + 127) / 255);
}

cv::Rect Inside(const Box& box, const cv::Mat& mat) {
  return cv::Rect(box.x, box.y, box.width, box.height) &
         cv::Rect(0, 0, mat.cols, mat.rows);
}

void BlurMat(int radius, cv::Mat* mat) {
  const int size = 2 * radius + 1;
  cv::GaussianBlur(*mat, *mat, {size, size}, 0, 0, cv::BORDER_REPLICATE);
}

// Keeps `parts` of each pixel.
void Keep(const cv::Mat& parts, cv::Mat mat) {
  for (int y = 0; y < mat.rows; ++y) {
    const uint8_t* part = parts.ptr<uint8_t>(y);
    uint8_t* pixel = mat.ptr<uint8_t>(y);
    for (int x = 0; x < mat.cols; ++x, pixel += 3) {
      for (int c = 0; c < 3; ++c) pixel[c] = Scale(pixel[c], part[x]);
    }
  }
}

// A projection of the plane: (x, y) goes to (a x + b y + c, d x + e y + f) /
// (g x + h y + i). Only the arithmetic that IEEE defines to the last bit.
using Projection = std::array<double, 9>;

struct Place {
  double x, y;
};

// From the unit square to the corners, clockwise from (0, 0).
Projection FromSquare(const std::array<Place, 4>& to) {
  const double dx1 = to[1].x - to[2].x, dx2 = to[3].x - to[2].x;
  const double dy1 = to[1].y - to[2].y, dy2 = to[3].y - to[2].y;
  const double sx = to[0].x - to[1].x + to[2].x - to[3].x;
  const double sy = to[0].y - to[1].y + to[2].y - to[3].y;
  const double whole = dx1 * dy2 - dx2 * dy1;
  const double g = (sx * dy2 - dx2 * sy) / whole;
  const double h = (dx1 * sy - sx * dy1) / whole;
  return {to[1].x - to[0].x + g * to[1].x,
          to[3].x - to[0].x + h * to[3].x,
          to[0].x,
          to[1].y - to[0].y + g * to[1].y,
          to[3].y - to[0].y + h * to[3].y,
          to[0].y,
          g,
          h,
          1};
}

// The inverse, up to a factor, which does not change a projection.
Projection Inverse(const Projection& p) {
  return {p[4] * p[8] - p[5] * p[7], p[2] * p[7] - p[1] * p[8],
          p[1] * p[5] - p[2] * p[4], p[5] * p[6] - p[3] * p[8],
          p[0] * p[8] - p[2] * p[6], p[2] * p[3] - p[0] * p[5],
          p[3] * p[7] - p[4] * p[6], p[1] * p[6] - p[0] * p[7],
          p[0] * p[4] - p[1] * p[3]};
}

// The part of a pixel that is nearest to a place in pixels, from -4096 on.
int NearestPart(double place) {
  // A conversion cuts towards zero, so the number is made positive first.
  return static_cast<int>((place + 4096) * kParts + 0.5) - 4096 * kParts;
}

void WarpMat(const Corners& corners, int bend, int border,
             const cv::Scalar& outside, Canvas* canvas) {
  const int width = canvas->width();
  const int height = canvas->height();
  const auto at = [&](const int(&part)[2], int x, int y) {
    const double in_x = part[0] / 1000.0, in_y = part[1] / 1000.0;
    return Place{x + (x == 0 ? in_x : -in_x), y + (y == 0 ? in_y : -in_y)};
  };
  const Projection back = Inverse(FromSquare(
      {at(corners.top_left, 0, 0), at(corners.top_right, 1, 0),
       at(corners.bottom_right, 1, 1), at(corners.bottom_left, 0, 1)}));
  // remap takes whole pixels and 1/32 of them, and computes in integers.
  cv::Mat whole(height, width, CV_16SC2);
  cv::Mat parts(height, width, CV_16UC1);
  for (int y = 0; y < height; ++y) {
    const double v = (y + 0.5) / height;
    const double shift = bend * 4 * v * (1 - v) / width;
    int16_t* place = whole.ptr<int16_t>(y);
    uint16_t* part = parts.ptr<uint16_t>(y);
    for (int x = 0; x < width; ++x) {
      const double u = (x + 0.5) / width - shift;
      const double w = back[6] * u + back[7] * v + back[8];
      const double from_x = (back[0] * u + back[1] * v + back[2]) / w;
      const double from_y = (back[3] * u + back[4] * v + back[5]) / w;
      const int fx = NearestPart(from_x * width - 0.5);
      const int fy = NearestPart(from_y * height - 0.5);
      place[2 * x] = static_cast<int16_t>(fx >> cv::INTER_BITS);
      place[2 * x + 1] = static_cast<int16_t>(fy >> cv::INTER_BITS);
      part[x] = static_cast<uint16_t>((fy & (kParts - 1)) * cv::INTER_TAB_SIZE +
                                      (fx & (kParts - 1)));
    }
  }
  cv::Mat to = GetMat(canvas);
  const cv::Mat from = to.clone();
  cv::remap(from, to, whole, parts, cv::INTER_LINEAR, border, outside);
}

}  // namespace

void LightUnevenly(int darkest, Random* look, Canvas* canvas) {
  cv::Mat mat = GetMat(canvas);
  cv::Mat lights(kLights, kLights, CV_8UC1);
  for (int y = 0; y < kLights; ++y) {
    for (int x = 0; x < kLights; ++x) {
      lights.at<uint8_t>(y, x) =
          static_cast<uint8_t>(look->Between(darkest, 255));
    }
  }
  // Smooth in two steps: plain interpolation alone shows its corners.
  cv::Mat smooth;
  cv::resize(lights, smooth, {32, 32}, 0, 0, cv::INTER_LINEAR_EXACT);
  BlurMat(5, &smooth);
  cv::resize(smooth, lights, mat.size(), 0, 0, cv::INTER_LINEAR_EXACT);
  Keep(lights, mat);
}

void CastShadow(Form form, const Box& box, int darkness, int blur,
                Canvas* canvas) {
  cv::Mat mat = GetMat(canvas);
  const cv::Rect around = Inside({box.x - 2 * blur, box.y - 2 * blur,
                                  box.width + 4 * blur, box.height + 4 * blur},
                                 mat);
  if (around.empty()) return;
  cv::Mat parts(around.size(), CV_8UC1, cv::Scalar(255));
  FillFormIn(form, {box.x - around.x, box.y - around.y, box.width, box.height},
             {static_cast<uint8_t>(255 - darkness), 0, 0}, &parts);
  BlurMat(blur, &parts);
  Keep(parts, mat(around));
}

void LightForm(Form form, const Box& box, int top, int bottom, Canvas* canvas) {
  cv::Mat mat = GetMat(canvas);
  const cv::Rect inside = Inside(box, mat);
  if (inside.empty()) return;
  cv::Mat within(inside.size(), CV_8UC1, cv::Scalar(0));
  FillFormIn(form, {box.x - inside.x, box.y - inside.y, box.width, box.height},
             {255, 0, 0}, &within);
  for (int y = 0; y < inside.height; ++y) {
    const int light =
        top + (bottom - top) * (inside.y + y - box.y) / box.height;
    const uint8_t* part = within.ptr<uint8_t>(y);
    uint8_t* pixel = mat.ptr<uint8_t>(inside.y + y) + 3 * inside.x;
    for (int i = 0; i < 3 * inside.width; ++i) {
      const int value = pixel[i] + light * part[i / 3] / 255;
      pixel[i] = static_cast<uint8_t>(std::clamp(value, 0, 255));
    }
  }
}

void Blur(int radius, Canvas* canvas) {
  cv::Mat mat = GetMat(canvas);
  BlurMat(radius, &mat);
}

Corners DrawCorners(int low, int high, Random* look) {
  Corners corners;
  for (auto* corner : {&corners.top_left, &corners.top_right,
                       &corners.bottom_right, &corners.bottom_left}) {
    for (int& part : *corner) part = look->Between(low, high);
  }
  return corners;
}

void Warp(const Corners& corners, int bend, Rgb outside, Canvas* canvas) {
  WarpMat(corners, bend, cv::BORDER_CONSTANT,
          cv::Scalar(outside.r, outside.g, outside.b), canvas);
}

void Warp(const Corners& corners, Canvas* canvas) {
  WarpMat(corners, /*bend=*/0, cv::BORDER_REPLICATE, {}, canvas);
}

void AddGrain(int amplitude, Random* random, Canvas* canvas) {
  uint64_t bits = 0;
  const int mask = 2 * amplitude - 1;
  const size_t count = canvas->pixels().size() / 3;
  for (size_t i = 0; i < count; ++i) {
    // One random number has four bits for each of sixteen pixels.
    if (i % 16 == 0) bits = random->Next();
    const int grain = static_cast<int>(bits & 15 & mask) - amplitude;
    bits >>= 4;
    uint8_t* pixel = canvas->data() + 3 * i;
    for (int c = 0; c < 3; ++c) {
      pixel[c] = static_cast<uint8_t>(std::clamp(pixel[c] + grain, 0, 255));
    }
  }
}

}  // namespace ballast
