#include "proto/image/resample_weights.h"

#include <cstdlib>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

constexpr int32_t kOne = 1 << kWeightBits;

TEST(ResampleWeightsTest, AnUnchangedLengthTakesEachPixelItself) {
  const ResampleWeights weights = AllWeights(9, 9, {});
  ASSERT_EQ(weights.taps.size(), 9u);
  for (uint32_t i = 0; i < 9; ++i) {
    const ResampleTaps& taps = weights.taps[i];
    for (uint32_t t = 0; t < taps.count; ++t) {
      EXPECT_EQ(weights.weights[taps.weights + t],
                taps.first + t == i ? kOne : 0);
    }
  }
}

// Doubling evaluates the kernel at a quarter and three quarters of a pixel,
// where the cubic has these values.
TEST(ResampleWeightsTest, DoublingTakesTheCubicsValues) {
  const ResampleWeights weights = AllWeights(10, 20, {});
  const ResampleTaps& taps = weights.taps[10];  // its centre is at 5.25
  ASSERT_EQ(taps.first, 3u);
  ASSERT_EQ(taps.count, 4u);
  const int32_t* found = weights.weights.data() + taps.weights;
  EXPECT_EQ(found[0], kOne / 128 * -3);
  EXPECT_EQ(found[1], kOne / 128 * 29);
  EXPECT_EQ(found[2], kOne / 128 * 111);
  EXPECT_EQ(found[3], kOne / 128 * -9);
}

TEST(ResampleWeightsTest, WeightsSumToOneAndStayInside) {
  for (const uint32_t source : {1u, 2u, 3u, 7u, 100u, 4001u}) {
    for (const uint32_t output : {1u, 2u, 5u, 99u, 100u, 101u, 1000u}) {
      SCOPED_TRACE(::testing::Message() << source << " to " << output);
      const ResampleWeights weights = AllWeights(source, output, {});
      ASSERT_EQ(weights.taps.size(), output);
      for (const ResampleTaps& taps : weights.taps) {
        ASSERT_GE(taps.count, 1u);
        ASSERT_LE(taps.first + taps.count, source);
        int64_t sum = 0;
        for (uint32_t t = 0; t < taps.count; ++t) {
          sum += weights.weights[taps.weights + t];
        }
        // Rounding changes each weight by at most a half.
        EXPECT_LE(std::abs(sum - kOne), taps.count / 2 + 1);
      }
    }
  }
}

// Lengths of which pixels have as many taps, and others; shrinking and growing.
TEST(FilterWeightsTest, VectorCodeHasTheBitsOfPlainCode) {
  if (!HasCubicWeightsAvx2()) GTEST_SKIP() << "no AVX2";
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const uint32_t most = round % 3 == 0 ? 40 : 5000;
    const uint32_t source = 1 + random() % most;
    const uint32_t output = 1 + random() % (round % 2 == 0 ? most : 1200);
    for (const ResampleLibrary library :
         {ResampleLibrary::kPillow12, ResampleLibrary::kTorchvision}) {
      SCOPED_TRACE(::testing::Message() << source << " to " << output);
      const Resampling resampling = {ResampleFilter::kBicubic, library};
      FilterWeights vectors(source, output, resampling);
      FilterWeights plain(source, output, resampling);
      plain.UsePlainCode();
      for (uint32_t i = 0; i < output; ++i) {
        uint32_t first = 0;
        uint32_t plain_first = 0;
        ASSERT_EQ(vectors.Weights(i, &first), plain.Weights(i, &plain_first));
        ASSERT_EQ(first, plain_first);
        ASSERT_LE(plain.Weights(i, &first).size(), plain.most_taps());
      }
    }
  }
}

TEST(FilterWeightsTest, AGroupHasTheWeightsOfItsPixels) {
  for (const ResampleFilter kind :
       {ResampleFilter::kBox, ResampleFilter::kBilinear,
        ResampleFilter::kBicubic, ResampleFilter::kLanczos}) {
    // 11 pixels are two groups and three pixels of a third.
    FilterWeights groups(37, 11, {kind, ResampleLibrary::kPillow12});
    FilterWeights pixels(37, 11, {kind, ResampleLibrary::kPillow12});
    for (uint32_t i = 0; i < 11; ++i) {
      const uint32_t place = i % FilterWeights::kGroup;
      const FilterWeights::Group& group = groups.WeightsOfGroup(i - place);
      uint32_t first = 0;
      const std::vector<int32_t>& weights = pixels.Weights(i, &first);
      EXPECT_EQ(group.first[place], first);
      ASSERT_EQ(group.count[place], weights.size());
      for (size_t t = 0; t < group.rows.size(); ++t) {
        EXPECT_EQ(group.rows[t][place], t < weights.size() ? weights[t] : 0);
      }
    }
  }
}

TEST(ResampleWeightsTest, ClipsAndRounds) {
  constexpr int32_t kHalf = kOne / 2;
  EXPECT_EQ(ClipWeightedSum(kHalf + 7 * kOne), 7);
  EXPECT_EQ(ClipWeightedSum(kHalf + 7 * kOne + kHalf), 8);
  EXPECT_EQ(ClipWeightedSum(kHalf + 7 * kOne + kHalf - 1), 7);
  EXPECT_EQ(ClipWeightedSum(kHalf - 60 * kOne), 0);
  EXPECT_EQ(ClipWeightedSum(kHalf + 300 * kOne), 255);
}

}  // namespace
}  // namespace ballast
