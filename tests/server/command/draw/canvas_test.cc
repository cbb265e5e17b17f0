#include "server/command/draw/canvas.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace ballast {
namespace {

// Shows a row of the picture with one character per pixel: '#' if it is not
// white.
std::string Row(const Canvas& canvas, int y) {
  std::string row;
  for (int x = 0; x < canvas.width(); ++x) {
    const uint8_t* pixel =
        canvas.pixels().data() + 3 * (y * canvas.width() + x);
    row += pixel[0] == 255 && pixel[1] == 255 && pixel[2] == 255 ? '.' : '#';
  }
  return row;
}

std::string Picture(const Canvas& canvas) {
  std::string picture;
  for (int y = 0; y < canvas.height(); ++y) picture += Row(canvas, y) + "\n";
  return picture;
}

constexpr Rgb kWhite = {255, 255, 255};
constexpr Rgb kBlack = {0, 0, 0};

TEST(CanvasTest, BoxesAreClippedToThePicture) {
  Canvas canvas(4, 3, kWhite);
  canvas.FillBox({-5, 1, 7, 100}, kBlack);
  EXPECT_EQ(Picture(canvas), "....\n##..\n##..\n");
  canvas.FillBox({9, 9, 1, 1}, kBlack);
  canvas.FillBox({0, -9, 1, 1}, kBlack);
  EXPECT_EQ(Picture(canvas), "....\n##..\n##..\n");
}

TEST(CanvasTest, FillsShapes) {
  Canvas frame(5, 4, kWhite);
  frame.DrawFrame({0, 0, 5, 4}, 1, kBlack);
  EXPECT_EQ(Picture(frame), "#####\n#...#\n#...#\n#####\n");
  Canvas triangle(4, 4, kWhite);
  triangle.FillTriangle({0, 0, 4, 4}, kBlack);
  EXPECT_EQ(Picture(triangle), ".#..\n.##.\n###.\n####\n");
  Canvas lozenge(6, 6, kWhite);
  lozenge.FillLozenge({0, 0, 6, 6}, kBlack);
  EXPECT_EQ(Picture(lozenge),
            "..##..\n.####.\n######\n######\n.####.\n..##..\n");
  Canvas ellipse(4, 4, kWhite);
  ellipse.FillEllipse({0, 0, 4, 4}, kBlack);
  // Half widths: 2 sqrt(1 - 0.75^2) = 1.3 and 2 sqrt(1 - 0.25^2) = 1.9.
  EXPECT_EQ(Picture(ellipse), ".##.\n####\n####\n.##.\n");
}

TEST(CanvasTest, TextIsDotsOfTheFont) {
  Canvas canvas(12, 9, kWhite);
  canvas.DrawText(0, 0, 1, kBlack, "Ly");
  EXPECT_EQ(Picture(canvas),
            "#...........\n"
            "#...........\n"
            "#.....#...#.\n"
            "#.....#...#.\n"
            "#.....#...#.\n"
            "#.....#...#.\n"
            "#####..####.\n"
            "..........#.\n"
            ".......###..\n");
  EXPECT_EQ(TextWidth("Ly", 1), 11);
  EXPECT_EQ(TextWidth("Ly", 3), 33);
  EXPECT_EQ(TextWidth("", 3), 0);
}

TEST(CanvasTest, UnknownCharactersAreQuestionMarks) {
  Canvas known(6, 9, kWhite), control(6, 9, kWhite), high(6, 9, kWhite);
  known.DrawText(0, 0, 1, kBlack, "?");
  control.DrawText(0, 0, 1, kBlack, "\n");
  high.DrawText(0, 0, 1, kBlack, "\xff");
  EXPECT_EQ(Picture(known), Picture(control));
  EXPECT_EQ(Picture(known), Picture(high));
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

TEST(CanvasTest, NoiseIsGreyWithinItsAmplitudeAndNeverWraps) {
  Canvas canvas(100, 100, {100, 0, 255});
  Random random(1, 0);
  canvas.AddNoise(4, &random);
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
