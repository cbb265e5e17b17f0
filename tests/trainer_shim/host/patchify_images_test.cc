#include "trainer_shim/host/patchify_images.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr PatchShape kShape = {.patch = 14, .merge = 2, .temporal_patch = 2};
constexpr uint64_t kPatchBytes = 3 * 14 * 14;

std::string Fault(const std::vector<PatchifyImage>& images,
                  uint64_t pixel_bytes, uint64_t out_rows,
                  const PatchShape& shape = kShape) {
  return std::string(
      CheckImages(images, shape, pixel_bytes, out_rows).status().message());
}

TEST(CheckImagesTest, CountsTheRows) {
  const std::vector<PatchifyImage> images = {{0, 3, 2, 4},
                                             {8 * kPatchBytes, 11, 6, 2}};
  EXPECT_EQ(*CheckImages(images, kShape, 20 * kPatchBytes, 23), 20);
  EXPECT_EQ(*CheckImages({}, kShape, 0, 0), 0);
}

TEST(CheckImagesTest, MemoryMayBeFullButNotOverflow) {
  const std::vector<PatchifyImage> images = {{256, 1, 2, 2}};
  EXPECT_TRUE(CheckImages(images, kShape, 256 + 4 * kPatchBytes, 5).ok());
  EXPECT_THAT(Fault(images, 255 + 4 * kPatchBytes, 5),
              AllOf(HasSubstr("image 0 of 1"), HasSubstr("byte 256"),
                    HasSubstr("2352 that follow, of 2607")));
  EXPECT_THAT(Fault(images, 256 + 4 * kPatchBytes, 4),
              HasSubstr("row 1 and the 4 that follow, of 4"));
  // Sums that would overflow 64 bits.
  EXPECT_THAT(Fault({{~uint64_t{0} - 100, 0, 2, 2}}, 1 << 20, 100),
              HasSubstr("byte 18446744073709551515"));
  EXPECT_THAT(Fault({{0, ~uint64_t{0}, 2, 2}}, 1 << 20, 100),
              HasSubstr("row 18446744073709551615"));
  EXPECT_THAT(Fault({{0, 0, 65534, 32768}}, 1 << 20, ~uint64_t{0}),
              HasSubstr("byte 0"));
}

TEST(CheckImagesTest, RefusesGrids) {
  for (const auto& [h, w] : std::vector<std::pair<uint32_t, uint32_t>>{
           {0, 2}, {2, 0}, {3, 2}, {2, 5}, {4294967294u, 4294967294u}}) {
    EXPECT_THAT(Fault({{0, 0, h, w}}, ~uint64_t{0}, ~uint64_t{0}),
                HasSubstr("wanted multiples of 2 above 0"))
        << h << "x" << w;
  }
}

TEST(CheckImagesTest, RefusesGapsAndOverlaps) {
  for (const uint64_t second : {7, 9, 0}) {
    EXPECT_THAT(Fault({{0, 0, 2, 4}, {0, second, 2, 2}}, 8 * kPatchBytes, 100),
                AllOf(HasSubstr("image 1 of 2"), HasSubstr("wanted 8")));
  }
}

TEST(CheckImagesTest, RefusesShapes) {
  EXPECT_THAT(Fault({}, 0, 0, {0, 2, 2}), HasSubstr("patch is 0"));
  EXPECT_THAT(Fault({}, 0, 0, {14, 0, 2}), HasSubstr("merge is 0"));
  EXPECT_THAT(Fault({}, 0, 0, {14, 2, 0}), HasSubstr("temporal_patch is 0"));
  EXPECT_THAT(Fault({}, 0, 0, {1025, 2, 2}), HasSubstr("wanted 1 to 1024"));
}

}  // namespace
}  // namespace ballast
