// Properties that follow from the filter; vectors_test.cc compares pixels with
// Pillow.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "server/image/image.h"

namespace ballast {
namespace {

RgbImage Flat(uint32_t width, uint32_t height) {
  RgbImage image{width, height, {}};
  for (uint32_t i = 0; i < width * height; ++i) {
    for (const uint8_t value : {0, 129, 255}) image.pixels.push_back(value);
  }
  return image;
}

TEST(ResizeTest, AFlatImageStaysFlat) {
  for (const auto& [width, height] :
       {std::pair(1u, 1u), std::pair(40u, 3u), std::pair(7u, 90u)}) {
    std::vector<uint8_t> out(width * height * 3);
    ASSERT_TRUE(
        ResizeBicubic(Flat(13, 11), width, height, absl::MakeSpan(out)).ok());
    EXPECT_EQ(out, Flat(width, height).pixels);
  }
}

TEST(ResizeTest, AnUnchangedSizeIsACopy) {
  RgbImage image = Flat(5, 4);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = i * 37;
  std::vector<uint8_t> out(image.pixels.size());
  ASSERT_TRUE(ResizeBicubic(image, 5, 4, absl::MakeSpan(out)).ok());
  EXPECT_EQ(out, image.pixels);
}

TEST(ResizeTest, RefusesSizesThatDoNotFit) {
  std::vector<uint8_t> out(2 * 2 * 3);
  const absl::Span<uint8_t> span = absl::MakeSpan(out);
  const auto code = [&](const RgbImage& source, uint32_t width, uint32_t height,
                        absl::Span<uint8_t> to) {
    return ResizeBicubic(source, width, height, to).code();
  };
  EXPECT_EQ(code(Flat(3, 3), 2, 2, span), absl::StatusCode::kOk);
  EXPECT_EQ(code(Flat(3, 3), 2, 2, span.first(11)),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Flat(3, 3), 0, 2, span.first(0)),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Flat(3, 0), 2, 2, span), absl::StatusCode::kInvalidArgument);
  RgbImage short_of_pixels = Flat(3, 3);
  short_of_pixels.pixels.pop_back();
  EXPECT_EQ(code(short_of_pixels, 2, 2, span),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ballast
