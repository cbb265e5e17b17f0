// Properties that follow from the filter; vectors_test.cc compares pixels with
// Pillow.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/sha256.h"
#include "proto/image/model_resampling.h"
#include "proto/image/resample_weights.h"
#include "server/image/image.h"
#include "tests/server/image/test_images.h"

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
        Resize(Flat(13, 11), Resampling(), width, height, absl::MakeSpan(out))
            .ok());
    EXPECT_EQ(out, Flat(width, height).pixels);
  }
}

TEST(ResizeTest, AnUnchangedSizeIsACopy) {
  RgbImage image = Flat(5, 4);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = i * 37;
  std::vector<uint8_t> out(image.pixels.size());
  ASSERT_TRUE(Resize(image, Resampling(), 5, 4, absl::MakeSpan(out)).ok());
  EXPECT_EQ(out, image.pixels);
}

TEST(ResizeTest, RefusesSizesThatDoNotFit) {
  std::vector<uint8_t> out(2 * 2 * 3);
  const absl::Span<uint8_t> span = absl::MakeSpan(out);
  const auto code = [&](const RgbImage& source, uint32_t width, uint32_t height,
                        absl::Span<uint8_t> to) {
    return Resize(source, Resampling(), width, height, to).code();
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

// Compares resized pictures with Pillow 12, Pillow 13 and torchvision;
// make_resize_vectors.py made the vectors.

const std::map<std::string, ResampleLibrary> kLibraries = {
    {"pillow12", ResampleLibrary::kPillow12},
    {"pillow13", ResampleLibrary::kPillow13},
    {"torchvision", ResampleLibrary::kTorchvision}};
const std::map<std::string, ResampleFilter> kFilters = {
    {"box", ResampleFilter::kBox},
    {"bilinear", ResampleFilter::kBilinear},
    {"bicubic", ResampleFilter::kBicubic},
    {"lanczos", ResampleFilter::kLanczos}};

// As in make_resize_vectors.py.
RgbImage Picture(uint32_t width, uint32_t height) {
  RgbImage image{width, height, {}};
  uint32_t state = width * 65536 + height;
  for (uint32_t i = 0; i < width * height * 3; ++i) {
    state = state * 1664525 + 1013904223;
    image.pixels.push_back(i / 97 % 3 == 0 ? (i / 17 % 2) * 255 : state >> 24);
  }
  return image;
}

TEST(ResizeVectorsTest, EveryFilterHasThePixelsOfEachLibrary) {
  const nlohmann::json vectors =
      ReadJsonOrFail(TestDataPath("resize_vectors.json"));
  for (const auto& [name, library] : kLibraries) {
    ASSERT_TRUE(vectors.contains(name));
    for (const nlohmann::json& vector : vectors[name]["vectors"]) {
      SCOPED_TRACE(name + " " + vector.dump());
      const Resampling resampling = {
          .filter = kFilters.at(vector[0].get<std::string>()),
          .library = library};
      const uint32_t width = vector[3];
      const uint32_t height = vector[4];
      std::vector<uint8_t> out(size_t{width} * height * 3);
      ASSERT_TRUE(Resize(Picture(vector[1], vector[2]), resampling, width,
                         height, absl::MakeSpan(out))
                      .ok());
      EXPECT_EQ(Sha256Hex(out), vector[5].get<std::string>());
    }
  }
}

TEST(ResizeOrderTest, FollowsEachLibrary) {
  using enum ResampleLibrary;
  // Shrinks by 40 and by 20 pixels: not more than twice.
  EXPECT_FALSE(IsResizedAlongYFirst(kPillow13, 90, 60, 70, 20));
  EXPECT_TRUE(IsResizedAlongYFirst(kPillow13, 90, 60, 70, 19));
  EXPECT_FALSE(IsResizedAlongYFirst(kPillow12, 90, 60, 70, 19));
  EXPECT_FALSE(IsResizedAlongYFirst(kTorchvision, 90, 60, 70, 19));
  // A growing width; a height that does not shrink.
  EXPECT_TRUE(IsResizedAlongYFirst(kPillow13, 640, 480, 644, 476));
  EXPECT_FALSE(IsResizedAlongYFirst(kPillow13, 640, 480, 1000, 480));
  // Very tall.
  EXPECT_TRUE(IsResizedAlongYFirst(kPillow12, 3, 410, 2, 409));
  EXPECT_FALSE(IsResizedAlongYFirst(kPillow13, 3, 410, 2, 409));
  EXPECT_FALSE(IsResizedAlongYFirst(kTorchvision, 3, 410, 2, 30));
}

}  // namespace
}  // namespace ballast
