#include "trainer_shim/pixel_arithmetic.h"

#include <vector>

#include <gtest/gtest.h>

#include "trainer_shim/patchify.h"

// The oracle is the CPU's Patchify: the kernel for patches whose channels lie
// side by side, a word at a time, must give the same values.

namespace ballast {
namespace {

constexpr uint32_t kPatch = 16;

// The kernel's loop over the words of a crop, on the host.
std::vector<float> ByWords(const std::vector<uint8_t>& rgb,
                           const CropSides& crop, const PatchShape& shape,
                           const NormaliseTable& table) {
  constexpr uint32_t kWordsOfPatch = 3 * kPatch * kPatch / 4;
  std::vector<float> out(shape.GetRows(crop.grid_h, crop.grid_w) * shape.row());
  for (uint64_t i = 0; i < out.size() / 4; ++i) {
    const uint64_t number = i / kWordsOfPatch;
    const uint32_t word = i % kWordsOfPatch;
    if (number >= uint64_t{crop.grid_h} * crop.grid_w) continue;
    const uint64_t at =
        4 * WordOfPatch<kPatch>(number, word, crop.grid_w, crop.width);
    EXPECT_LE(at + 4, rgb.size());
    for (int n = 0; n < 4; ++n) {
      out[i * 4 + n] = table.floats((word * 4 + n) % 3)[rgb[at + n]];
    }
  }
  return out;
}

TEST(PixelWordsTest, SameAsPatchify) {
  const NormaliseTable table({0.48145466, 0.4578275, 0.40821073},
                             {0.26862954, 0.26130258, 0.27577711},
                             Normalisation::kPil);
  const PatchShape shape = {kPatch, 1, 1, true, 40};
  for (const uint32_t margin : {0, 4, 8, 12, 16, 36}) {
    for (const auto& [h, w] :
         {std::pair{4u, 6u}, {2u, 2u}, {6u, 4u}, {1u, 40u}, {40u, 1u}}) {
      const CropSides crop = {h, w, h * kPatch + margin, w * kPatch + margin};
      ASSERT_TRUE(LinesAreWords(0, crop.width));
      std::vector<uint8_t> rgb(uint64_t{3} * crop.height * crop.width);
      for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = i * 2654435761u >> 24;
      std::vector<float> want(shape.padded_rows * shape.row());
      Patchify(rgb.data(), crop, shape, table, want.data());
      EXPECT_EQ(ByWords(rgb, crop, shape, table), want)
          << h << " x " << w << " patches, " << margin << " pixels more";
    }
  }
}

TEST(PixelWordsTest, LinesAreWordsWhereEachBeginsAtOne) {
  for (uint64_t offset = 0; offset < 8; ++offset) {
    for (uint32_t width = 1; width < 64; ++width) {
      bool all = true;
      for (uint64_t y = 0; y < 4; ++y) {
        all = all && (offset + y * 3 * width) % 4 == 0;
      }
      EXPECT_EQ(LinesAreWords(offset, width), all) << offset << ", " << width;
    }
  }
}

// A word beyond 32 bits: line 100,000 of a crop 60,000 pixels wide.
TEST(PixelWordsTest, CountsPast32Bits) {
  const uint64_t number = uint64_t{6250} * 3750;  // patches of 6250 rows above
  EXPECT_EQ(WordOfPatch<kPatch>(number, 13, 3750, 60000),
            (uint64_t{100000} + 1) * 45000 + 1);
}

}  // namespace
}  // namespace ballast
