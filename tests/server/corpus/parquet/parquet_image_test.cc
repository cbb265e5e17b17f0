#include "server/corpus/parquet/parquet_image.h"

#include <vector>

#include "gtest/gtest.h"
#include "server/corpus/limits.h"

namespace ballast {
namespace {

TEST(AppendImageTest, BoundsImages) {
  const auto image = [](uint64_t size) {
    ParquetImage image;
    image.size = size;
    return image;
  };
  std::vector<ParquetImage> images(kMaxImages, image(1));
  EXPECT_EQ(AppendImage(image(1), &images).message(), "over 10000 images");
  images.assign(1, image(kMaxSampleBytes));
  EXPECT_EQ(AppendImage(image(0), &images).code(), absl::StatusCode::kOk);
  EXPECT_EQ(AppendImage(image(1), &images).message(),
            "over 1073741824 bytes in all");
}

}  // namespace
}  // namespace ballast
