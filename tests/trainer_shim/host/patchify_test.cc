#include "trainer_shim/host/patchify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

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

}  // namespace
}  // namespace ballast
