// Damaged files must give an error or an image, and nothing else. Run this
// under asan too.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/image/image.h"
#include "tests/server/image/test_images.h"

namespace ballast {
namespace {

// Larger claimed sizes have a separate test: allocating for each would take
// long.
constexpr uint64_t kManyPixels = 1 << 22;

void ExpectErrorOrImage(const std::vector<char>& bytes) {
  const absl::string_view view(bytes.data(), bytes.size());
  const absl::StatusOr<ImageHeader> header = ReadImageHeader(view);
  if (header.ok() && uint64_t{header->width} * header->height > kManyPixels) {
    return;
  }
  const absl::StatusOr<RgbImage> image = ImageDecoder().Decode(view);
  if (!image.ok()) {
    EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument)
        << image.status();
    return;
  }
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(image->width, header->width);
  EXPECT_EQ(image->height, header->height);
  EXPECT_EQ(image->pixels.size(), size_t{3} * image->width * image->height);
}

class HostileImageTest : public ::testing::Test {
 protected:
  HostileImageTest() {
    const nlohmann::json vectors = ReadJsonOrFail(TestDataPath("vectors.json"));
    for (const nlohmann::json& file : vectors["files"]) {
      files_.push_back(ReadFileOrFail(TestDataPath(file["file"])));
    }
  }

  std::vector<std::string> files_;
  std::mt19937 random_{20};
};

TEST_F(HostileImageTest, SurvivesFlippedBytes) {
  for (const std::string& file : files_) {
    for (int round = 0; round < 60; ++round) {
      std::vector<char> bytes(file.begin(), file.end());
      for (uint32_t n = random_() % 4 + 1; n > 0; --n) {
        bytes[random_() % bytes.size()] ^= 1 << random_() % 8;
      }
      ExpectErrorOrImage(bytes);
    }
  }
}

TEST_F(HostileImageTest, SurvivesOverwrittenAndMovedStretches) {
  for (const std::string& file : files_) {
    for (int round = 0; round < 30; ++round) {
      std::vector<char> bytes(file.begin(), file.end());
      const size_t from = random_() % bytes.size();
      const size_t to = random_() % bytes.size();
      const size_t count =
          std::min<size_t>(random_() % 40, bytes.size() - std::max(from, to));
      for (size_t i = 0; i < count; ++i) {
        bytes[to + i] = round % 2 ? bytes[from + i] : random_();
      }
      ExpectErrorOrImage(bytes);
    }
  }
}

TEST_F(HostileImageTest, SurvivesGarbageAfterAGoodStart) {
  for (const std::string& file : files_) {
    std::vector<char> bytes(file.begin(), file.end());
    const size_t keep = random_() % bytes.size();
    for (size_t i = keep; i < bytes.size(); ++i) bytes[i] = random_();
    ExpectErrorOrImage(bytes);
  }
}

// libjpeg would process the image once for each scan.
TEST(HostileJpegTest, RefusesTooManyScans) {
  const std::string file = ReadFileOrFail(TestDataPath("420_progressive.jpg"));
  const size_t scan = file.rfind("\xff\xda");
  const size_t end = file.rfind("\xff\xd9");
  ASSERT_NE(scan, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  std::string scans = file.substr(0, end);
  for (int i = 0; i < 200; ++i) scans += file.substr(scan, end - scan);
  EXPECT_EQ(ImageDecoder().Decode(scans + file.substr(end)).status().message(),
            "JPEG is damaged: more than 100 scans");
}

// The largest size that is accepted, claimed in a few bytes.
TEST(HostilePngTest, RefusesALargeClaimWithoutData) {
  const std::string small = ReadFileOrFail(TestDataPath("one_pixel.png"));
  std::string large = small;
  large.replace(16, 8, std::string("\0\0\x40\0\0\0\x40\0", 8));
  EXPECT_EQ(ImageDecoder().Decode(large).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DecodeResizedTest, RefusesAFileOfAnotherSizeThanIndexed) {
  const std::string file = ReadFileOrFail(TestDataPath("width_1.png"));
  std::vector<uint8_t> out(2 * 2 * 3);
  const auto code = [&](uint32_t width, uint32_t height) {
    return DecodeResized(file, {ImageFormat::kPng, width, height}, 2, 2,
                         absl::MakeSpan(out))
        .code();
  };
  EXPECT_EQ(code(1, 40), absl::StatusCode::kOk);
  EXPECT_EQ(code(40, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, 41), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ballast
