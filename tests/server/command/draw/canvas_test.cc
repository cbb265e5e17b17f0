#include "server/command/draw/canvas.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace ballast {
namespace {

int GetRed(const Canvas& canvas, int x, int y) {
  return canvas.pixels()[3 * (y * canvas.width() + x)];
}

// A picture of a ramp to the right: red is x.
Canvas Ramp(int width, int height) {
  Canvas canvas(width, height, {0, 0, 0});
  for (int x = 0; x < width; ++x) {
    canvas.FillBox({x, 0, 1, height}, {static_cast<uint8_t>(x), 0, 0});
  }
  return canvas;
}

constexpr Corners kInPlace = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};

TEST(PhotoTest, CornersInPlaceLeaveThePictureAsItIs) {
  Random random(1, 0);
  Canvas canvas = Ramp(100, 60);
  AddGrain(8, &random, &canvas);
  const std::vector<uint8_t> before = canvas.pixels();
  Warp(kInPlace, &canvas);
  EXPECT_TRUE(canvas.pixels() == before);
  Warp(kInPlace, /*bend=*/0, {9, 9, 9}, &canvas);
  EXPECT_TRUE(canvas.pixels() == before);
}

// Each corner pixel of a white picture lands where its corner was sent.
TEST(PhotoTest, CornersGoWhereTheyAreSent) {
  Canvas canvas(200, 100, {255, 255, 255});
  // 100 thousandths: 20 pixels across, 10 down.
  Warp({{100, 100}, {200, 0}, {0, 300}, {50, 50}}, 0, {0, 0, 0}, &canvas);
  // Inside and outside of each corner, by two pixels along the diagonal.
  EXPECT_EQ(GetRed(canvas, 23, 13), 255);
  EXPECT_EQ(GetRed(canvas, 17, 7), 0);
  EXPECT_EQ(GetRed(canvas, 157, 6), 255);
  EXPECT_EQ(GetRed(canvas, 163, 1), 0);
  EXPECT_EQ(GetRed(canvas, 195, 67), 255);
  EXPECT_EQ(GetRed(canvas, 197, 76), 0);
  EXPECT_EQ(GetRed(canvas, 13, 92), 255);
  EXPECT_EQ(GetRed(canvas, 7, 98), 0);
}

// Half the size about the centre: red at x is that of 2x - 100 + 1/2.
TEST(PhotoTest, AnEvenShrinkIsLinear) {
  Canvas canvas = Ramp(200, 100);
  Warp({{250, 250}, {250, 250}, {250, 250}, {250, 250}}, 0, {255, 0, 0},
       &canvas);
  for (int x = 52; x < 148; ++x) {
    EXPECT_NEAR(GetRed(canvas, x, 50), 2 * x - 99.5, 1) << x;
  }
  EXPECT_EQ(GetRed(canvas, 40, 50), 255);
}

TEST(PhotoTest, BendingMovesTheMiddle) {
  Canvas canvas = Ramp(200, 101);
  Warp(kInPlace, /*bend=*/10, {0, 0, 0}, &canvas);
  EXPECT_EQ(GetRed(canvas, 100, 50), 90);
  EXPECT_NEAR(GetRed(canvas, 100, 0), 100, 1);
  EXPECT_NEAR(GetRed(canvas, 100, 100), 100, 1);
}

TEST(PhotoTest, BlurKeepsTheMeanAndSpreadsAPoint) {
  Canvas canvas(21, 21, {0, 0, 0});
  canvas.FillBox({10, 10, 1, 1}, {255, 255, 255});
  Blur(2, &canvas);
  int sum = 0;
  for (int y = 0; y < 21; ++y) {
    for (int x = 0; x < 21; ++x) {
      const int value = GetRed(canvas, x, y);
      sum += value;
      EXPECT_EQ(value, GetRed(canvas, y, x));
      EXPECT_EQ(value, GetRed(canvas, 20 - x, y));
      EXPECT_EQ(value > 0, std::abs(x - 10) <= 2 && std::abs(y - 10) <= 2);
    }
  }
  EXPECT_NEAR(sum, 255, 13);  // 25 values, each rounded
  EXPECT_GT(GetRed(canvas, 10, 10), GetRed(canvas, 11, 10));
}

TEST(PhotoTest, LightNeverGoesBelowTheDarkest) {
  Random look(5, 0);
  Canvas canvas(300, 200, {255, 255, 255});
  LightUnevenly(200, &look, &canvas);
  const auto [darkest, brightest] =
      std::minmax_element(canvas.pixels().begin(), canvas.pixels().end());
  EXPECT_GE(*darkest, 200);
  EXPECT_GT(*brightest - *darkest, 10);
  for (int x = 1; x < 300; ++x) {
    EXPECT_LE(std::abs(GetRed(canvas, x, 100) - GetRed(canvas, x - 1, 100)), 3);
  }
}

TEST(PhotoTest, ShadowsAndLightStayWithTheirForm) {
  Canvas canvas(100, 100, {200, 200, 200});
  CastShadow(Form::kRectangle, {40, 40, 20, 20}, 255, 2, &canvas);
  EXPECT_LT(GetRed(canvas, 50, 50), 5);
  EXPECT_NEAR(GetRed(canvas, 39, 50), 100, 40);  // an edge is half in shadow
  EXPECT_EQ(GetRed(canvas, 34, 50), 200);
  CastShadow(Form::kEllipse, {500, 500, 20, 20}, 255, 2, &canvas);
  Canvas lit(100, 101, {100, 100, 100});
  LightForm(Form::kRectangle, {0, 0, 100, 100}, 50, -50, &lit);
  EXPECT_NEAR(GetRed(lit, 50, 1), 150, 2);
  EXPECT_NEAR(GetRed(lit, 50, 50), 100, 2);
  EXPECT_NEAR(GetRed(lit, 50, 98), 52, 2);
  EXPECT_EQ(GetRed(lit, 50, 100), 100);
}

TEST(PhotoTest, GrainIsGreyWithinItsAmplitudeAndNeverWraps) {
  Canvas canvas(100, 100, {100, 0, 255});
  Random random(1, 0);
  AddGrain(4, &random, &canvas);
  int seen[8] = {};
  for (size_t i = 0; i < canvas.pixels().size(); i += 3) {
    const int grain = canvas.pixels()[i] - 100;
    ASSERT_GE(grain, -4);
    ASSERT_LE(grain, 3);
    ++seen[grain + 4];
    EXPECT_EQ(canvas.pixels()[i + 1], grain > 0 ? grain : 0);
    EXPECT_EQ(canvas.pixels()[i + 2], grain < 0 ? 255 + grain : 255);
  }
  for (const int count : seen) EXPECT_NEAR(count, 1250, 200);
}

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
