// Compares small images of every kind with Pillow's pixels, as written by
// make_vectors.py.
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

  // Resizes `bytes` to each of `expected` and compares.
  static void ExpectResized(ImageDecoder& decoder, const std::string& file,
                            const std::string& bytes, const ImageHeader& size,
                            const nlohmann::json& expected) {
    for (const nlohmann::json& resized : expected) {
      SCOPED_TRACE(::testing::Message() << file << " to " << resized["width"]
                                        << "x" << resized["height"]);
      const uint32_t width = resized["width"];
      const uint32_t height = resized["height"];
      std::vector<uint8_t> pixels(size_t{width} * height * 3);
      const absl::Status status = decoder.DecodeResized(
          bytes, size, width, height, absl::MakeSpan(pixels));
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(Sha256Hex(pixels), resized["sha256"]);
    }
  }

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
    const absl::StatusOr<RgbImage> image = ImageDecoder().Decode(bytes);
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
    ImageDecoder decoder;
    ExpectResized(decoder, expected["file"], bytes, *header,
                  expected["resized"]);
  }
}

TEST_F(ImageVectorsTest, OrientedPixelsMatchPillow) {
  ImageOptions options;
  options.apply_exif_orientation = true;
  ImageDecoder decoder(options);
  size_t turned = 0;
  for (const nlohmann::json& file : vectors_["files"]) {
    const std::string bytes = ReadFileOrFail(TestDataPath(file["file"]));
    const absl::StatusOr<ImageHeader> size = ReadImageSize(bytes, options);
    ASSERT_TRUE(size.ok()) << size.status();
    // A file without an orientation is unchanged.
    const bool has = file.contains("transposed");
    turned += has;
    const nlohmann::json& expected = has ? file["transposed"] : file;
    EXPECT_EQ(size->width, expected["width"]) << file["file"];
    EXPECT_EQ(size->height, expected["height"]) << file["file"];
    const absl::StatusOr<RgbImage> image = decoder.Decode(bytes);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(Sha256Hex(image->pixels), expected["rgb_sha256"]) << file["file"];
    ExpectResized(decoder, file["file"], bytes, *size, expected["resized"]);
  }
  EXPECT_GE(turned, 15u);
}

TEST_F(ImageVectorsTest, JudgesDamagedFilesLikePillow) {
  const nlohmann::json cases = ReadJsonOrFail(TestDataPath("damaged.json"));
  ASSERT_FALSE(cases.empty());
  ImageDecoder decoder;
  for (const nlohmann::json& damaged : cases) {
    SCOPED_TRACE(damaged.dump());
    std::string bytes = ReadFileOrFail(TestDataPath(damaged["file"]));
    for (const nlohmann::json& change : damaged["changes"]) {
      bytes[change[0].get<size_t>()] = static_cast<char>(change[1].get<int>());
    }
    const absl::StatusOr<RgbImage> image = decoder.Decode(bytes);
    if (damaged["rgb_sha256"].is_null()) {
      EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument);
    } else {
      ASSERT_TRUE(image.ok()) << image.status();
      EXPECT_EQ(Sha256Hex(image->pixels), damaged["rgb_sha256"]);
    }
  }
}

TEST_F(ImageVectorsTest, RefusesWhatPillowRefuses) {
  ASSERT_FALSE(vectors_["refused"].empty());
  for (const std::string file : vectors_["refused"]) {
    EXPECT_EQ(ImageDecoder()
                  .Decode(ReadFileOrFail(TestDataPath(file)))
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument)
        << file;
  }
}

TEST_F(ImageVectorsTest, AcceptsThePrefixesThatPillowAccepts) {
  for (const nlohmann::json& expected : vectors_["files"]) {
    const std::string bytes = ReadFileOrFail(TestDataPath(expected["file"]));
    const size_t shortest = expected["shortest_accepted"];
    // For larger files, some of all lengths and those around the border.
    const size_t step = bytes.size() < 6000 ? 1 : 101;
    const auto next = [&](size_t size) {
      const bool near = size + step >= shortest && size < shortest + 2;
      return near ? size + 1 : size + step;
    };
    for (size_t size = 0; size <= bytes.size(); size = next(size)) {
      SCOPED_TRACE(::testing::Message()
                   << expected["file"] << " cut to " << size << " of "
                   << bytes.size() << " bytes; Pillow needs " << shortest);
      // A separate copy, so that reading past its end is detected.
      const std::vector<char> prefix(bytes.begin(), bytes.begin() + size);
      const absl::StatusOr<RgbImage> image =
          ImageDecoder().Decode(absl::string_view(prefix.data(), size));
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
