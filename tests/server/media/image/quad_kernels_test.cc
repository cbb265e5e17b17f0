// Compares every instruction set of this machine with plain loops.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/image/job_images.h"
#include "proto/image/resample_weights.h"
#include "server/media/image/image.h"
#include "server/media/image/quad_kernels.h"

namespace ballast {
namespace {

constexpr size_t kPixelBytes = 3;
constexpr int32_t kHalf = 1 << (kWeightBits - 1);

void ResampleRow(const uint8_t* source, const ResampleWeights& horizontal,
                 uint8_t* out) {
  for (const ResampleTaps& taps : horizontal.taps) {
    const int32_t* weights = horizontal.weights.data() + taps.weights;
    const uint8_t* pixel = source + size_t{taps.first} * kPixelBytes;
    int32_t r = kHalf, g = kHalf, b = kHalf;
    for (uint32_t i = 0; i < taps.count; ++i, pixel += kPixelBytes) {
      r += pixel[0] * weights[i];
      g += pixel[1] * weights[i];
      b += pixel[2] * weights[i];
    }
    out[0] = ClipWeightedSum(r);
    out[1] = ClipWeightedSum(g);
    out[2] = ClipWeightedSum(b);
    out += kPixelBytes;
  }
}

// Computes one output row from `taps.count` rows of `stride` bytes, the first
// at `rows`.
void ResampleColumns(const uint8_t* rows, size_t stride,
                     const ResampleTaps& taps, const int32_t* weights,
                     std::vector<int32_t>& sums, uint8_t* out) {
  sums.assign(stride, kHalf);
  for (uint32_t i = 0; i < taps.count; ++i, rows += stride) {
    for (size_t x = 0; x < stride; ++x) sums[x] += rows[x] * weights[i];
  }
  for (size_t x = 0; x < stride; ++x) out[x] = ClipWeightedSum(sums[x]);
}

// Resize as plain loops over a whole image, in the library's order of
// operations: the reference for the vector kernels.
absl::Status ReferenceResize(const RgbImage& source,
                             const Resampling& resampling, uint32_t width,
                             uint32_t height, absl::Span<uint8_t> out) {
  if (width == 0 || height == 0 || source.width == 0 || source.height == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("resizing an image of ", source.width, "x", source.height,
                     " pixels to ", width, "x", height));
  }
  const size_t source_stride = size_t{source.width} * kPixelBytes;
  const size_t stride = size_t{width} * kPixelBytes;
  if (source.pixels.size() != source_stride * source.height ||
      out.size() != stride * height) {
    return absl::InvalidArgumentError(absl::StrCat(
        "resizing ", source.width, "x", source.height, " pixels in ",
        source.pixels.size(), " bytes to ", width, "x", height, " pixels in ",
        out.size(), " bytes; a pixel takes ", kPixelBytes));
  }
  if (width == source.width && height == source.height) {
    std::memcpy(out.data(), source.pixels.data(), out.size());
    return absl::OkStatus();
  }
  if (width != source.width &&
      IsResizedAlongYFirst(resampling.library, source.width, source.height,
                           width, height)) {
    RgbImage narrow{source.width, height, {}};
    narrow.pixels.resize(source_stride * height);
    const absl::Status first =
        ReferenceResize(source, resampling, source.width, height,
                        absl::MakeSpan(narrow.pixels));
    return first.ok() ? ReferenceResize(narrow, resampling, width, height, out)
                      : first;
  }
  // A pass between equal lengths would leave the pixels as they are.
  if (height == source.height) {
    const ResampleWeights horizontal =
        AllWeights(source.width, width, resampling);
    for (size_t y = 0; y < height; ++y) {
      ResampleRow(source.pixels.data() + y * source_stride, horizontal,
                  out.data() + y * stride);
    }
    return absl::OkStatus();
  }
  const uint8_t* rows = source.pixels.data();
  std::vector<uint8_t> resampled;
  if (width != source.width) {
    const ResampleWeights horizontal =
        AllWeights(source.width, width, resampling);
    resampled.resize(stride * source.height);
    for (size_t y = 0; y < source.height; ++y) {
      ResampleRow(source.pixels.data() + y * source_stride, horizontal,
                  resampled.data() + y * stride);
    }
    rows = resampled.data();
  }
  const ResampleWeights vertical =
      AllWeights(source.height, height, resampling);
  std::vector<int32_t> sums;
  for (size_t y = 0; y < height; ++y) {
    const ResampleTaps& taps = vertical.taps[y];
    ResampleColumns(rows + taps.first * stride, stride, taps,
                    vertical.weights.data() + taps.weights, sums,
                    out.data() + y * stride);
  }
  return absl::OkStatus();
}

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
