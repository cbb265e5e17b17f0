#include "trainer_shim/host/patchify.h"

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

// An image of patches of 14 pixels.
PatchifyImage Image(uint64_t pixel_offset, uint64_t first_row, uint32_t h,
                    uint32_t w) {
  return {pixel_offset, first_row, h, w, h * 14, w * 14};
}

std::string Fault(const std::vector<PatchifyImage>& images,
                  uint64_t pixel_bytes, uint64_t out_rows,
                  const PatchShape& shape = kShape) {
  return std::string(
      CheckImages(images, shape, pixel_bytes, out_rows).status().message());
}

TEST(CheckImagesTest, CountsTheRows) {
  const std::vector<PatchifyImage> images = {Image(0, 3, 2, 4),
                                             Image(8 * kPatchBytes, 11, 6, 2)};
  EXPECT_EQ(*CheckImages(images, kShape, 20 * kPatchBytes, 23), 20);
  EXPECT_EQ(*CheckImages({}, kShape, 0, 0), 0);
}

TEST(CheckImagesTest, MemoryMayBeFullButNotOverflow) {
  const std::vector<PatchifyImage> images = {Image(256, 1, 2, 2)};
  EXPECT_TRUE(CheckImages(images, kShape, 256 + 4 * kPatchBytes, 5).ok());
  EXPECT_THAT(Fault(images, 255 + 4 * kPatchBytes, 5),
              AllOf(HasSubstr("image 0 of 1"), HasSubstr("byte 256"),
                    HasSubstr("2352 that follow, of 2607")));
  EXPECT_THAT(Fault(images, 256 + 4 * kPatchBytes, 4),
              HasSubstr("row 1 and the 4 that follow, of 4"));
  // Sums that would overflow 64 bits.
  EXPECT_THAT(Fault({Image(~uint64_t{0} - 100, 0, 2, 2)}, 1 << 20, 100),
              HasSubstr("byte 18446744073709551515"));
  EXPECT_THAT(Fault({Image(0, ~uint64_t{0}, 2, 2)}, 1 << 20, 100),
              HasSubstr("row 18446744073709551615"));
  EXPECT_THAT(Fault({Image(0, 0, 65534, 32768)}, 1 << 20, ~uint64_t{0}),
              HasSubstr("byte 0"));
}

TEST(CheckImagesTest, RefusesGrids) {
  for (const auto& [h, w] : std::vector<std::pair<uint32_t, uint32_t>>{
           {0, 2}, {2, 0}, {3, 2}, {2, 5}, {4294967294u, 4294967294u}}) {
    EXPECT_THAT(Fault({Image(0, 0, h, w)}, ~uint64_t{0}, ~uint64_t{0}),
                HasSubstr("wanted multiples of 2 above 0"))
        << h << "x" << w;
  }
}

TEST(CheckImagesTest, RefusesGapsAndOverlaps) {
  for (const uint64_t second : {7, 9, 0}) {
    EXPECT_THAT(Fault({Image(0, 0, 2, 4), Image(0, second, 2, 2)},
                      8 * kPatchBytes, 100),
                AllOf(HasSubstr("image 1 of 2"), HasSubstr("wanted 8")));
  }
}

TEST(CheckImagesTest, CountsPaddedRows) {
  const PatchShape shape = {14, 1, 1, true, 9};
  EXPECT_EQ(*CheckImages({Image(0, 2, 3, 3), Image(0, 11, 1, 2)}, shape,
                         9 * kPatchBytes, 20),
            18);
  EXPECT_THAT(Fault({Image(0, 0, 2, 5)}, 99 * kPatchBytes, 99, shape),
              HasSubstr("grid of 2x5 patches"));
  EXPECT_THAT(Fault({Image(0, 0, 2, 2)}, 9 * kPatchBytes, 8, shape),
              HasSubstr("row 0 and the 9 that follow, of 8"));
  EXPECT_THAT(
      Fault({Image(0, 0, 2, 2), Image(0, 4, 2, 2)}, 9 * kPatchBytes, 18, shape),
      HasSubstr("first_row is 4, wanted 9"));
}

TEST(CheckImagesTest, RefusesPixelsThatPatchesReachPast) {
  PatchifyImage image = Image(0, 0, 2, 4);
  image.height += 6;
  image.width += 6;
  EXPECT_EQ(*CheckImages({image}, kShape, 3 * 34 * 62, 8), 8);
  EXPECT_THAT(Fault({image}, 3 * 34 * 62 - 1, 8), HasSubstr("byte 0"));
  image.width = 55;
  EXPECT_THAT(Fault({image}, 1 << 20, 8), HasSubstr("sides of 34x55 pixels"));
}

TEST(CheckImagesTest, ATileIsARow) {
  const PatchShape shape = {.tile_h = 32, .tile_w = 48};
  const std::vector<PatchifyImage> images = {{0, 5, 2, 3, 32, 48},
                                             {4608, 6, 1, 1, 16, 30}};
  EXPECT_EQ(*CheckImages(images, shape, 6048, 7), 2);
  EXPECT_THAT(Fault(images, 6047, 7, shape), HasSubstr("byte 4608"));
  EXPECT_THAT(Fault(images, 6048, 6, shape), HasSubstr("row 6"));
  EXPECT_THAT(Fault({{0, 0, 1, 1, 33, 48}}, 9999, 7, shape),
              HasSubstr("sides of 33x48 pixels, wanted 1x1 to 32x48"));
  EXPECT_THAT(Fault({{0, 0, 1, 1, 32, 0}}, 9999, 7, shape),
              HasSubstr("sides of 32x0 pixels"));
  EXPECT_THAT(Fault({}, 0, 0, {.tile_h = 70000, .tile_w = 1}),
              HasSubstr("tile_h is 70000"));
}

TEST(CheckImagesTest, FramesOfATemporalPatch) {
  constexpr uint64_t kFrame = 8 * kPatchBytes;
  PatchifyImage image = Image(256, 0, 2, 4);
  image.frames = 2;
  image.frame_stride = kFrame + 64;
  EXPECT_EQ(*CheckImages({image}, kShape, 256 + 64 + 2 * kFrame, 8), 8);
  EXPECT_THAT(Fault({image}, 255 + 64 + 2 * kFrame, 8), HasSubstr("byte 256"));
  image.frame_stride = kFrame - 1;
  EXPECT_THAT(Fault({image}, 1 << 20, 8),
              HasSubstr("frames 4703 bytes apart, wanted at least 4704"));
  image.frame_stride = ~uint32_t{0};
  EXPECT_THAT(Fault({image}, 1 << 20, 8), HasSubstr("byte 256"));
  image.frames = 3;
  EXPECT_THAT(Fault({image}, 1 << 20, 8), HasSubstr("3 frames, wanted 1 to 2"));
  image.frames = 0;
  EXPECT_THAT(Fault({image}, 1 << 20, 8), HasSubstr("0 frames, wanted 1 to 2"));
  image.frames = 2;
  image.frame_stride = kFrame;
  EXPECT_THAT(Fault({image}, 1 << 20, 8, {.tile_h = 28, .tile_w = 56}),
              HasSubstr("2 frames, wanted 1 to 1"));
}

TEST(CheckImagesTest, RefusesShapes) {
  EXPECT_THAT(Fault({}, 0, 0, {14, 1, 2, true}),
              HasSubstr("temporal_patch is 2, wanted 1 with channels_last"));
  EXPECT_THAT(Fault({}, 0, 0, {0, 2, 2}), HasSubstr("patch is 0"));
  EXPECT_THAT(Fault({}, 0, 0, {14, 0, 2}), HasSubstr("merge is 0"));
  EXPECT_THAT(Fault({}, 0, 0, {14, 2, 0}), HasSubstr("temporal_patch is 0"));
  EXPECT_THAT(Fault({}, 0, 0, {1025, 2, 2}), HasSubstr("wanted 1 to 1024"));
}

}  // namespace
}  // namespace ballast
