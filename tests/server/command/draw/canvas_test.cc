#include "server/command/draw/canvas.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

constexpr Rgb kWhite = {255, 255, 255};
constexpr Rgb kBlack = {0, 0, 0};

int RedAt(const Canvas& canvas, int x, int y) {
  return canvas.pixels()[3 * (y * canvas.width() + x)];
}

// Shows the picture with one character per pixel: '#' if it is not white.
std::string Draw(const Canvas& canvas) {
  std::string picture;
  for (int y = 0; y < canvas.height(); ++y) {
    for (int x = 0; x < canvas.width(); ++x) {
      picture += RedAt(canvas, x, y) == 255 ? '.' : '#';
    }
    picture += '\n';
  }
  return picture;
}

// The area in pixels that black covers on white; a grey pixel counts in part.
double Covered(const Canvas& canvas) {
  double sum = 0;
  for (const uint8_t value : canvas.pixels()) sum += 255 - value;
  return sum / (3 * 255);
}

TEST(CanvasTest, BoxesAreClippedToThePicture) {
  Canvas canvas(4, 3, kWhite);
  canvas.FillBox({-5, 1, 7, 100}, kBlack);
  EXPECT_EQ(Draw(canvas), "....\n##..\n##..\n");
  canvas.FillBox({9, 9, 1, 1}, kBlack);
  canvas.FillBox({0, -9, 1, 1}, kBlack);
  EXPECT_EQ(Draw(canvas), "....\n##..\n##..\n");
}

TEST(CanvasTest, FramesLieInsideTheirBox) {
  Canvas canvas(5, 4, kWhite);
  canvas.DrawFrame({0, 0, 5, 4}, 1, kBlack);
  EXPECT_EQ(Draw(canvas), "#####\n#...#\n#...#\n#####\n");
}

TEST(CanvasTest, ColoursAreRedGreenBlue) {
  const Canvas canvas(2, 1, {1, 2, 3});
  EXPECT_EQ(canvas.pixels(), (std::vector<uint8_t>{1, 2, 3, 1, 2, 3}));
}

// The area of a form by its formula; smooth edges keep it.
TEST(CanvasTest, FormsCoverTheirArea) {
  constexpr int kWidth = 120, kHeight = 80;
  const struct {
    Form form;
    double share;
  } forms[] = {{Form::kEllipse, std::acos(-1.0) / 4},
               {Form::kTriangle, 0.5},
               {Form::kRectangle, 1},
               {Form::kLozenge, 0.5}};
  for (const auto& [form, share] : forms) {
    Canvas canvas(200, 140, kWhite);
    canvas.FillForm(form, {30, 40, kWidth, kHeight}, kBlack);
    // A smooth edge reaches up to a pixel further.
    EXPECT_NEAR(Covered(canvas), share * kWidth * kHeight,
                2 * (kWidth + kHeight))
        << static_cast<int>(form);
    for (int y = 0; y < 140; ++y) {
      for (int x = 0; x < 200; ++x) {
        if (x < 28 || x > 151 || y < 38 || y > 121) {
          ASSERT_EQ(RedAt(canvas, x, y), 255) << x << " " << y;
        }
      }
    }
    EXPECT_EQ(RedAt(canvas, 30 + kWidth / 2, 40 + kHeight / 2), 0);
  }
}

TEST(CanvasTest, ATriangleStandsUpright) {
  Canvas canvas(100, 100, kWhite);
  canvas.FillForm(Form::kTriangle, {0, 0, 100, 100}, kBlack);
  EXPECT_EQ(RedAt(canvas, 10, 95), 0);
  EXPECT_EQ(RedAt(canvas, 90, 95), 0);
  EXPECT_EQ(RedAt(canvas, 10, 10), 255);
  EXPECT_EQ(RedAt(canvas, 90, 10), 255);
}

TEST(CanvasTest, TextStandsWhereItsCapitalsShould) {
  constexpr int kScale = 4;
  for (const Face face :
       {Face::kSans, Face::kSansBold, Face::kSerif, Face::kSerifBold}) {
    const Type type = {kScale, face};
    Canvas canvas(200, 100, kWhite);
    canvas.DrawText(20, 30, type, kBlack, "HELLO");
    int left = 200, right = 0, top = 100, bottom = 0;
    for (int y = 0; y < 100; ++y) {
      for (int x = 0; x < 200; ++x) {
        if (RedAt(canvas, x, y) > 128) continue;
        left = std::min(left, x), right = std::max(right, x);
        top = std::min(top, y), bottom = std::max(bottom, y);
      }
    }
    EXPECT_NEAR(top, 30, 2);
    EXPECT_NEAR(bottom, 30 + TextHeight(kScale), 2);
    EXPECT_NEAR(left, 20, 2 * kScale);
    EXPECT_NEAR(right, 20 + TextWidth("HELLO", type), 2 * kScale);
  }
  EXPECT_EQ(TextWidth("", {kScale}), 0);
}

TEST(CanvasTest, TextIsMadeToFitItsRoom) {
  const Type type = {2, Face::kSans};
  const std::string text = "a text that is wider than the room it has";
  ASSERT_GT(TextWidth(text, type), 200);
  Canvas canvas(400, 40, kWhite);
  canvas.DrawText(10, 10, type, kBlack, text, /*room=*/200);
  for (int y = 0; y < 40; ++y) {
    for (int x = 214; x < 400; ++x) ASSERT_EQ(RedAt(canvas, x, y), 255);
  }
  EXPECT_GT(Covered(canvas), 100);
}

TEST(CanvasTest, UnknownCharactersAreQuestionMarks) {
  Canvas known(40, 30, kWhite), control(40, 30, kWhite), high(40, 30, kWhite);
  known.DrawText(5, 5, {2}, kBlack, "??");
  control.DrawText(5, 5, {2}, kBlack, "\n\t");
  high.DrawText(5, 5, {2}, kBlack, "\xff\xc3");
  EXPECT_GT(Covered(known), 10);
  EXPECT_EQ(Draw(known), Draw(control));
  EXPECT_EQ(Draw(known), Draw(high));
}

TEST(CanvasTest, GradientGoesFromTopToBottom) {
  Canvas canvas(1, 100, kBlack);
  canvas.FillGradient({0, 100, 200}, {100, 100, 0});
  for (int y = 0; y < 100; ++y) {
    EXPECT_EQ(canvas.pixels()[3 * y], y);
    EXPECT_EQ(canvas.pixels()[3 * y + 1], 100);
    EXPECT_EQ(canvas.pixels()[3 * y + 2], 200 - 2 * y);
  }
}

}  // namespace
}  // namespace ballast
