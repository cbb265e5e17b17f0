// Compares every instruction set of this machine with plain loops.
#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <hwy/targets.h>

#include "proto/image/resample_weights.h"
#include "server/image/image.h"
#include "server/image/quad_kernels.h"
#include "server/image/quad_table.h"
#include "tests/server/image/reference_resize.h"

namespace ballast {
namespace {

// Each bit of hwy::SupportedTargets() on its own, and plain code.
std::vector<int64_t> Targets() {
  hwy::SetSupportedTargetsForTest(0);
  std::vector<int64_t> targets;
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    targets.push_back(rest & -rest);
  }
  return targets;
}

class QuadKernelsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  QuadKernelsTest() { Choose(GetParam()); }
  ~QuadKernelsTest() override { Choose(0); }

  static void Choose(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  // Noise with runs of black and white, whose edges overshoot.
  RgbImage Picture(uint32_t width, uint32_t height) {
    RgbImage image{width, height, {}};
    image.pixels.resize(size_t{width} * height * 3);
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      const bool stretch = i / 97 % 3 == 0;
      image.pixels[i] = stretch ? (i / 17 % 2) * 255 : random_() & 255;
    }
    return image;
  }

  // All filters and libraries in turn, one a call.
  Resampling NextResampling() {
    const auto n = calls_++;
    return {.filter = static_cast<ResampleFilter>(n % 4),
            .library = static_cast<ResampleLibrary>(n / 4 % 3)};
  }

  void ExpectAsReference(const RgbImage& source, uint32_t width,
                         uint32_t height) {
    ExpectAsReference(source, Resampling(), width, height);
    ExpectAsReference(source, NextResampling(), width, height);
  }

  void ExpectAsReference(const RgbImage& source, const Resampling& resampling,
                         uint32_t width, uint32_t height) {
    std::vector<uint8_t> expected(size_t{width} * height * 3);
    std::vector<uint8_t> found(expected.size());
    ASSERT_TRUE(ReferenceResize(source, resampling, width, height,
                                absl::MakeSpan(expected))
                    .ok());
    ASSERT_TRUE(
        Resize(source, resampling, width, height, absl::MakeSpan(found)).ok());
    // EXPECT_EQ would print both pictures.
    EXPECT_TRUE(found == expected)
        << KernelTarget() << ": " << source.width << "x" << source.height
        << " to " << width << "x" << height << ", filter "
        << static_cast<int>(resampling.filter) << " of library "
        << static_cast<int>(resampling.library);
  }

  std::mt19937 random_{6};
  uint32_t calls_ = 0;
};

TEST_P(QuadKernelsTest, EqualThePlainLoopsAtRandomSizes) {
  const auto side = [&](uint32_t most) {
    return static_cast<uint32_t>(random_() % most + 1);
  };
  for (int round = 0; round < 120; ++round) {
    ExpectAsReference(Picture(side(90), side(90)), side(140), side(140));
  }
}

// Covers tables of one quad, two and many, and ratios near 1.
TEST_P(QuadKernelsTest, EqualThePlainLoopsAtEveryRatioOfSmallSizes) {
  for (uint32_t source = 1; source < 40; ++source) {
    const RgbImage image = Picture(source, 40 - source);
    for (uint32_t output = 1; output < 20; ++output) {
      ExpectAsReference(image, output, 21 - output);
    }
  }
}

TEST_P(QuadKernelsTest, EqualThePlainLoopsAtExtremeSizes) {
  for (int i = 0; i < 12; ++i) ExpectAsReference(Picture(2, 900), 1, 30);
  // A table of more than half of what a TableCache holds.
  ExpectAsReference(Picture(200, 1), 11328, 48);
  ExpectAsReference(Picture(1, 1), 84, 56);
  ExpectAsReference(Picture(1, 700), 28, 112);
  ExpectAsReference(Picture(1900, 10), 1876, 28);
  ExpectAsReference(Picture(10, 1900), 28, 1876);
  ExpectAsReference(Picture(5000, 3), 28, 28);
  ExpectAsReference(Picture(3, 5000), 28, 28);
  ExpectAsReference(Picture(2, 3), 300, 500);
}

TEST_P(QuadKernelsTest, EqualThePlainLoopsIfOneSideIsUnchanged) {
  ExpectAsReference(Picture(61, 33), 61, 20);
  ExpectAsReference(Picture(61, 33), 61, 70);
  ExpectAsReference(Picture(61, 33), 20, 33);
  ExpectAsReference(Picture(61, 33), 70, 33);
}

INSTANTIATE_TEST_SUITE_P(AllTargets, QuadKernelsTest,
                         ::testing::ValuesIn(Targets()), [](const auto& info) {
                           return hwy::TargetName(info.param);
                         });

constexpr int32_t kMaxWeight = 127 * (65536 + 256 + 1);

TEST(QuadTableTest, WordsAddUpToTheWeights) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    std::array<int32_t, 4> weights;
    for (int32_t& weight : weights) {
      weight = static_cast<int32_t>(random() % (1 << 24)) - (1 << 23);
      weight = std::clamp(weight, -kMaxWeight, kMaxWeight);
    }
    const auto digits = CutQuad(QuadFormat::kDigits, weights);
    const auto halves = CutQuad(QuadFormat::kHalves, weights);
    for (int i = 0; i < 4; ++i) {
      const auto digit = [&](int word) {
        return static_cast<int8_t>(digits[word] >> (8 * i));
      };
      EXPECT_EQ((digit(0) * 256 + digit(1)) * 256 + digit(2), weights[i]);
      const int shift = i / 2 * 16;
      const auto high = static_cast<int16_t>(halves[i % 2] >> shift);
      const auto low = static_cast<int16_t>(halves[2 + i % 2] >> shift);
      EXPECT_EQ(high * 4096 + low, weights[i]);
    }
  }
}

// Reads the table as the kernels do: each source pixel has the filter's weight.
TEST(QuadTableTest, PlacesEveryWeight) {
  for (const auto& [source, output] :
       {std::pair(100u, 97u), std::pair(97u, 100u), std::pair(400u, 28u),
        std::pair(1u, 50u), std::pair(33u, 11u), std::pair(2001u, 2000u)}) {
    const ResampleWeights weights = AllWeights(source, output, {});
    QuadTable table;
    table.Build(QuadFormat::kDigits, Resampling(), source, output);
    ASSERT_EQ(table.taps().size(), output);
    for (uint32_t i = 0; i < output; ++i) {
      std::vector<int32_t> expected(source + 8);
      for (uint32_t t = 0; t < weights.taps[i].count; ++t) {
        expected[weights.taps[i].first + t] =
            weights.weights[weights.taps[i].weights + t];
      }
      std::vector<int32_t> found(source + 8);
      const QuadTaps& taps = table.taps()[i];
      ASSERT_LE(taps.count, table.most_quads());
      for (uint32_t p = 0; p < taps.count * 4; ++p) {
        int32_t weight = 0;
        for (int word = 0; word < 3; ++word) {
          const uint32_t digits = table.words(taps)[p / 4 * 3 + word];
          weight = weight * 256 + static_cast<int8_t>(digits >> (p % 4 * 8));
        }
        found[taps.first * 4 + taps.shift / 8 + p] = weight;
      }
      EXPECT_EQ(found, expected) << source << " to " << output << ", " << i;
    }
  }
}

}  // namespace
}  // namespace ballast
