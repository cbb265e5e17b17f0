#include "server/command/draw/photo.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

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

}  // namespace
}  // namespace ballast
