#include "trainer_shim/patchify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

// mean 0 and std 1/255 (to float) leave every byte as it is.
NormaliseTable Identity() {
  return NormaliseTable({0, 0, 0}, {1.0 / 255, 1.0 / 255, 1.0 / 255},
                        Normalisation::kTorchvision);
}

TEST(NormaliseTableTest, FollowsBothFormulas) {
  // CLIP's red channel; from Hugging Face's processors (golden/images.json):
  // byte 87 becomes -0.5221994519… with torchvision, -0.5221993923… with PIL.
  const std::array<double, 3> mean = {0.48145466, 0.4578275, 0.40821073};
  const std::array<double, 3> std = {0.26862954, 0.26130258, 0.27577711};
  const NormaliseTable torchvision(mean, std, Normalisation::kTorchvision);
  const NormaliseTable pil(mean, std, Normalisation::kPil);
  EXPECT_EQ(torchvision.floats(0)[87], -0.5221994519233704f);
  EXPECT_EQ(pil.floats(0)[87], -0.5221993923187256f);
  for (int c = 0; c < 3; ++c) {
    for (int x = 0; x < 256; ++x) {
      const double exact = (x / 255.0 - mean[c]) / std[c];
      EXPECT_NEAR(torchvision.floats(c)[x], exact, 1e-6);
      EXPECT_NEAR(pil.floats(c)[x], exact, 1e-6);
      EXPECT_EQ(pil.bfloat16s(c)[x], ToBfloat16(pil.floats(c)[x]));
    }
  }
}

// From torchvision's normalize of a bfloat16 tensor times 1/255.
TEST(NormaliseTableTest, ComputesInBfloat16) {
  const NormaliseTable clip({0.48145466, 0.4578275, 0.40821073},
                            {0.26862954, 0.26130258, 0.27577711},
                            Normalisation::kBfloat16);
  EXPECT_EQ(clip.floats(0)[87], -0.5234375f);
  EXPECT_EQ(clip.floats(1)[87], -0.439453125f);
  EXPECT_EQ(clip.floats(2)[87], -0.2412109375f);
  const NormaliseTable halves({.5, .5, .5}, {.5, .5, .5},
                              Normalisation::kBfloat16);
  EXPECT_EQ(halves.floats(0)[87], -0.31640625f);
  EXPECT_EQ(halves.floats(0)[0], -1.0f);
  EXPECT_EQ(halves.floats(0)[255], 1.0f);
}

TEST(ToBfloat16Test, RoundsToNearestEven) {
  const auto bits = [](uint32_t b) { return std::bit_cast<float>(b); };
  EXPECT_EQ(ToBfloat16(1.0f), 0x3F80);
  EXPECT_EQ(ToBfloat16(-2.0f), 0xC000);
  EXPECT_EQ(ToBfloat16(0.0f), 0x0000);
  EXPECT_EQ(ToBfloat16(bits(0x3F808000)), 0x3F80);  // tie, stays even
  EXPECT_EQ(ToBfloat16(bits(0x3F818000)), 0x3F82);  // tie, up to even
  EXPECT_EQ(ToBfloat16(bits(0x3F808001)), 0x3F81);  // just above the tie
  EXPECT_EQ(ToBfloat16(bits(0x3F817FFF)), 0x3F81);  // just below
  EXPECT_EQ(ToBfloat16(bits(0x3FFFFFFF)), 0x4000);  // carries into exponent
}

TEST(ToBfloat16Test, NoOtherBfloat16IsNearer) {
  for (int i = -3000; i < 3000; ++i) {
    const float value = i * 0.00123f;
    const uint16_t rounded = ToBfloat16(value);
    const auto distance = [&](uint16_t b) {
      return std::abs(std::bit_cast<float>(uint32_t{b} << 16) - value);
    };
    EXPECT_LE(distance(rounded), distance(rounded + 1));
    if ((rounded & 0x7FFF) > 0) {
      EXPECT_LE(distance(rounded), distance(rounded - 1));
    }
  }
}

// The processors' patch order, inverted: for each value of the output, the
// pixel that belongs there.
TEST(PatchifyTest, EveryPixelLiesWhereTheFormulaSays) {
  const struct {
    PatchShape shape;
    uint32_t h, w;
  } cases[] = {{{14, 2, 2}, 4, 6},
               {{16, 2, 2}, 2, 2},
               {{3, 1, 1}, 3, 5},
               {{9, 1, 1}, 1, 1},
               {{2, 3, 3}, 6, 3}};
  const NormaliseTable table = Identity();
  for (const auto& [shape, h, w] : cases) {
    const uint32_t p = shape.patch, m = shape.merge, tps = shape.temporal_patch;
    std::vector<uint8_t> rgb(3 * h * p * w * p);
    for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = i * 131 + (i >> 8) * 17;
    std::vector<float> out(h * w * shape.row(), -1);
    std::vector<uint16_t> bf16(out.size());
    Patchify(rgb.data(), h, w, shape, table, out.data());
    PatchifyBfloat16(rgb.data(), h, w, shape, table, bf16.data());
    for (uint32_t gh = 0; gh < h; ++gh) {
      for (uint32_t gw = 0; gw < w; ++gw) {
        const uint32_t row =
            ((gh / m) * (w / m) + gw / m) * m * m + (gh % m) * m + gw % m;
        for (uint32_t c = 0; c < 3; ++c) {
          for (uint32_t tp = 0; tp < tps; ++tp) {
            for (uint32_t y = 0; y < p; ++y) {
              for (uint32_t x = 0; x < p; ++x) {
                const uint32_t column = ((c * tps + tp) * p + y) * p + x;
                const uint8_t pixel =
                    rgb[((gh * p + y) * w * p + gw * p + x) * 3 + c];
                const size_t at = row * shape.row() + column;
                ASSERT_EQ(out[at], table.floats(c)[pixel]);
                ASSERT_EQ(bf16[at], table.bfloat16s(c)[pixel]);
              }
            }
          }
        }
      }
    }
  }
}

// Frame min(tp, count - 1) belongs at tp: the last is repeated.
TEST(PatchifyTest, FramesOfATemporalPatchLieSideBySide) {
  const struct {
    PatchShape shape;
    uint32_t h, w, count;
  } cases[] = {{{14, 2, 2}, 4, 6, 2}, {{14, 2, 2}, 4, 6, 1},
               {{16, 2, 2}, 2, 4, 2}, {{3, 1, 4}, 3, 5, 3},
               {{3, 1, 4}, 3, 5, 4},  {{2, 3, 3}, 6, 3, 2}};
  const NormaliseTable table({0.1, 0.2, 0.3}, {0.4, 0.5, 0.6},
                             Normalisation::kPil);
  for (const auto& [shape, h, w, count] : cases) {
    const uint32_t p = shape.patch, m = shape.merge, tps = shape.temporal_patch;
    const uint64_t frame = uint64_t{3} * h * p * w * p;
    const uint64_t stride = (frame + 255) / 256 * 256;
    std::vector<uint8_t> rgb(stride * count);
    for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = i * 131 + (i >> 8) * 17;
    std::vector<float> out(h * w * shape.row(), -1);
    std::vector<uint16_t> bf16(out.size());
    const CropSides sides = {h, w, h * p, w * p};
    Patchify(rgb.data(), FrameRun{count, stride}, sides, shape, table,
             out.data());
    PatchifyBfloat16(rgb.data(), FrameRun{count, stride}, sides, shape, table,
                     bf16.data());
    for (size_t i = 0; i < out.size(); ++i) {
      const uint32_t row = i / shape.row(), column = i % shape.row();
      const uint32_t token = row / (m * m), within = row % (m * m);
      const uint32_t gh = token / (w / m) * m + within / m;
      const uint32_t gw = token % (w / m) * m + within % m;
      const uint32_t x = column % p, y = column / p % p;
      const uint32_t tp = column / (p * p) % tps, c = column / (p * p) / tps;
      const uint8_t pixel = rgb[std::min(tp, count - 1) * stride +
                                ((gh * p + y) * w * p + gw * p + x) * 3 + c];
      ASSERT_EQ(out[i], table.floats(c)[pixel]) << i;
      ASSERT_EQ(bf16[i], table.bfloat16s(c)[pixel]) << i;
    }
  }
}

TEST(PatchifyTest, ChannelsMayLieSideBySide) {
  const PatchShape shape = {
      .patch = 4, .merge = 1, .temporal_patch = 1, .channels_last = true};
  constexpr uint32_t kH = 3, kW = 5, kP = 4;
  std::vector<uint8_t> rgb(3 * kH * kP * kW * kP);
  for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = i * 131 + (i >> 8) * 17;
  const NormaliseTable table({0.1, 0.2, 0.3}, {0.4, 0.5, 0.6},
                             Normalisation::kPil);
  std::vector<float> out(kH * kW * shape.row());
  std::vector<uint16_t> bf16(out.size());
  Patchify(rgb.data(), kH, kW, shape, table, out.data());
  PatchifyBfloat16(rgb.data(), kH, kW, shape, table, bf16.data());
  for (size_t i = 0; i < out.size(); ++i) {
    const uint32_t patch = i / shape.row(), column = i % shape.row();
    const uint32_t y = patch / kW * kP + column / 3 / kP;
    const uint32_t x = patch % kW * kP + column / 3 % kP;
    const uint32_t c = column % 3;
    const uint8_t pixel = rgb[(y * kW * kP + x) * 3 + c];
    ASSERT_EQ(out[i], table.floats(c)[pixel]);
    ASSERT_EQ(bf16[i], table.bfloat16s(c)[pixel]);
  }
}

TEST(PatchifyTest, PaddingBehindAnImageIsZero) {
  const PatchShape shape = {.patch = 2,
                            .merge = 1,
                            .temporal_patch = 1,
                            .channels_last = true,
                            .padded_rows = 9};
  const std::vector<uint8_t> rgb(3 * 2 * 2 * 6, 1);
  std::vector<float> out(9 * shape.row() + 1, 7);
  std::vector<uint16_t> bf16(out.size(), 7);
  Patchify(rgb.data(), 2, 3, shape, Identity(), out.data());
  PatchifyBfloat16(rgb.data(), 2, 3, shape, Identity(), bf16.data());
  for (size_t i = 0; i < 9 * shape.row(); ++i) {
    ASSERT_EQ(out[i], i / shape.row() < 6 ? 1 : 0) << i;
    ASSERT_EQ(bf16[i], i / shape.row() < 6 ? ToBfloat16(1) : 0) << i;
  }
  EXPECT_EQ(out.back(), 7);
  EXPECT_EQ(bf16.back(), 7);
}

TEST(PatchifyTest, PixelsThatNoPatchCoversAreSkipped) {
  const PatchShape shape = {.patch = 2, .merge = 1, .temporal_patch = 1};
  std::vector<uint8_t> rgb(3 * 5 * 7, 9);
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 6; ++x) {
      for (int c = 0; c < 3; ++c) rgb[(y * 7 + x) * 3 + c] = 100 + y * 6 + x;
    }
  }
  std::vector<float> out(2 * 3 * shape.row());
  Patchify(rgb.data(), CropSides{2, 3, 5, 7}, shape, Identity(), out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    const uint32_t patch = i / 12, y = patch / 3 * 2 + i % 4 / 2,
                   x = patch % 3 * 2 + i % 2;
    ASSERT_EQ(out[i], 100 + y * 6 + x) << i;
  }
}

TEST(PatchifyTest, ATileHoldsACropInItsCorner) {
  const PatchShape shape = {.tile_h = 5, .tile_w = 6};
  constexpr uint32_t kH = 3, kW = 4;
  std::vector<uint8_t> rgb(3 * kH * kW);
  for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = 1 + i;
  const NormaliseTable table({0.1, 0.2, 0.3}, {0.4, 0.5, 0.6},
                             Normalisation::kTorchvision);
  std::vector<float> out(shape.row() + 1, 7);
  std::vector<uint16_t> bf16(out.size(), 7);
  const CropSides crop = {1, 1, kH, kW};
  Patchify(rgb.data(), crop, shape, table, out.data());
  PatchifyBfloat16(rgb.data(), crop, shape, table, bf16.data());
  for (uint32_t c = 0; c < 3; ++c) {
    for (uint32_t y = 0; y < 5; ++y) {
      for (uint32_t x = 0; x < 6; ++x) {
        const uint32_t at = (c * 5 + y) * 6 + x;
        if (y >= kH || x >= kW) {
          ASSERT_EQ(out[at], 0);
          ASSERT_EQ(bf16[at], 0);
          continue;
        }
        const uint8_t pixel = rgb[(y * kW + x) * 3 + c];
        ASSERT_EQ(out[at], table.floats(c)[pixel]);
        ASSERT_EQ(bf16[at], table.bfloat16s(c)[pixel]);
      }
    }
  }
  EXPECT_EQ(out.back(), 7);
  EXPECT_EQ(bf16.back(), 7);
}

TEST(PatchifyTest, FourConsecutiveRowsAreOneToken) {
  // Each pixel holds the number of its 2x2 block of patches in raster order.
  const PatchShape shape = {.patch = 2, .merge = 2, .temporal_patch = 2};
  constexpr uint32_t kH = 4, kW = 6;
  std::vector<uint8_t> rgb;
  for (uint32_t y = 0; y < kH * 2; ++y) {
    for (uint32_t x = 0; x < kW * 2; ++x) {
      rgb.insert(rgb.end(), 3, (y / 4) * (kW / 2) + x / 4);
    }
  }
  std::vector<float> out(kH * kW * shape.row());
  Patchify(rgb.data(), kH, kW, shape, Identity(), out.data());
  for (size_t row = 0; row < kH * kW; ++row) {
    for (size_t k = 0; k < shape.row(); ++k) {
      ASSERT_EQ(out[row * shape.row() + k], row / 4);
    }
  }
}

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
