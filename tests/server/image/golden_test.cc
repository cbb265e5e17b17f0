// Compares photographs of the shared corpus with Pillow's pixels.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/sha256.h"
#include "server/image/image.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/image/test_images.h"

namespace ballast {
namespace {

TEST(GoldenImagesTest, DecodeAndResizeMatchPillow) {
  constexpr char kGolden[] = "golden/images.json";
  const std::optional<std::string> shared = SharedDirWith(kGolden);
  if (!shared) GTEST_SKIP() << NotShared(kGolden);
  const nlohmann::json golden = ReadJsonOrFail(*shared + "/" + kGolden);
  ASSERT_FALSE(golden["images"].empty());
  ImageDecoder decoder;
  for (const nlohmann::json& expected : golden["images"]) {
    const std::string name = expected["file"];
    SCOPED_TRACE(name);
    const std::string bytes =
        ReadFileOrFail(*shared + "/corpus/images/" + name);
    const absl::StatusOr<RgbImage> image = ImageDecoder().Decode(bytes);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->width, expected["width"]);
    EXPECT_EQ(image->height, expected["height"]);
    EXPECT_EQ(Sha256Hex(image->pixels), expected["rgb_sha256"]);

    for (const auto& [profile, resized] : expected["profiles"].items()) {
      SCOPED_TRACE(profile);
      const uint32_t width = resized["resized_w"];
      const uint32_t height = resized["resized_h"];
      std::vector<uint8_t> pixels(size_t{width} * height * 3);
      const absl::Status status =
          Resize(*image, Resampling(), width, height, absl::MakeSpan(pixels));
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(Sha256Hex(pixels), resized["resized_sha256"]);

      // The same sizes in one pass.
      std::fill(pixels.begin(), pixels.end(), 0);
      const absl::Status fused =
          decoder.DecodeResized(bytes, ReadImageHeader(bytes).value(), width,
                                height, absl::MakeSpan(pixels));
      ASSERT_TRUE(fused.ok()) << fused;
      EXPECT_EQ(Sha256Hex(pixels), resized["resized_sha256"]);
    }
  }
}

}  // namespace
}  // namespace ballast
