#include "proto/image/resample_weights.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace ballast {
namespace {

constexpr int32_t kOne = 1 << kWeightBits;

TEST(ResampleWeightsTest, AnUnchangedLengthTakesEachPixelItself) {
  const ResampleWeights weights = BicubicWeights(9, 9);
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
  const ResampleWeights weights = BicubicWeights(10, 20);
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
      const ResampleWeights weights = BicubicWeights(source, output);
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
