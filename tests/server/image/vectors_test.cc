// Small images of every kind against what Pillow made of them; make_vectors.py
// says how.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/sha256.h"
#include "server/image/image.h"
#include "tests/server/image/test_images.h"

namespace ballast {
namespace {

class ImageVectorsTest : public ::testing::Test {
 protected:
  ImageVectorsTest() : vectors_(ReadJsonOrFail(TestDataPath("vectors.json"))) {}

  const nlohmann::json vectors_;
};

TEST_F(ImageVectorsTest, HeaderAndPixelsMatchPillow) {
  ASSERT_FALSE(vectors_["files"].empty());
  for (const nlohmann::json& expected : vectors_["files"]) {
    SCOPED_TRACE(expected["file"]);
    const std::string bytes = ReadFileOrFail(TestDataPath(expected["file"]));
    const absl::StatusOr<ImageHeader> header = ReadImageHeader(bytes);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->width, expected["width"]);
    EXPECT_EQ(header->height, expected["height"]);
    const absl::StatusOr<RgbImage> image = DecodeRgb(bytes);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->width, expected["width"]);
    EXPECT_EQ(image->height, expected["height"]);
    EXPECT_EQ(Sha256Hex(image->pixels), expected["rgb_sha256"]);
  }
}

TEST_F(ImageVectorsTest, ResizedPixelsMatchPillow) {
  for (const nlohmann::json& expected : vectors_["files"]) {
    const std::string bytes = ReadFileOrFail(TestDataPath(expected["file"]));
    const absl::StatusOr<ImageHeader> header = ReadImageHeader(bytes);
    ASSERT_TRUE(header.ok()) << header.status();
    for (const nlohmann::json& resized : expected["resized"]) {
      SCOPED_TRACE(::testing::Message()
                   << expected["file"] << " to " << resized["width"] << "x"
                   << resized["height"]);
      const uint32_t width = resized["width"];
      const uint32_t height = resized["height"];
      std::vector<uint8_t> pixels(size_t{width} * height * 3);
      const absl::Status status =
          DecodeResized(bytes, *header, width, height, absl::MakeSpan(pixels));
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(Sha256Hex(pixels), resized["sha256"]);
    }
  }
}

TEST_F(ImageVectorsTest, RefusesWhatPillowRefuses) {
  ASSERT_FALSE(vectors_["refused"].empty());
  for (const std::string file : vectors_["refused"]) {
    EXPECT_EQ(DecodeRgb(ReadFileOrFail(TestDataPath(file))).status().code(),
              absl::StatusCode::kInvalidArgument)
        << file;
  }
}

TEST_F(ImageVectorsTest, AcceptsThePrefixesThatPillowAccepts) {
  for (const nlohmann::json& expected : vectors_["files"]) {
    const std::string bytes = ReadFileOrFail(TestDataPath(expected["file"]));
    const size_t shortest = expected["shortest_accepted"];
    for (size_t size = 0; size <= bytes.size(); ++size) {
      SCOPED_TRACE(::testing::Message()
                   << expected["file"] << " cut to " << size << " of "
                   << bytes.size() << " bytes; Pillow needs " << shortest);
      // A copy of its own, so that reading past its end is noticed.
      const std::vector<char> prefix(bytes.begin(), bytes.begin() + size);
      const absl::StatusOr<RgbImage> image =
          DecodeRgb(absl::string_view(prefix.data(), size));
      if (size < shortest) {
        EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument);
      } else {
        ASSERT_TRUE(image.ok()) << image.status();
        EXPECT_EQ(Sha256Hex(image->pixels), expected["rgb_sha256"]);
      }
    }
  }
}

}  // namespace
}  // namespace ballast
