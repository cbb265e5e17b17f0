#include "server/command/draw/canvas.h"

#include <algorithm>
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

}  // namespace ballast
