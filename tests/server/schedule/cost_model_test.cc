#include "server/schedule/cost_model.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

// Two images of 4*6 and 2*8 patches.
SampleSize TwoImages() {
  SampleSize size;
  size.grids.resize(2);
  size.grids[0].grid_h = 4;
  size.grids[0].grid_w = 6;
  size.grids[1].grid_h = 2;
  size.grids[1].grid_w = 8;
  size.patches = 24 + 16;
  size.tokens = 7;
  return size;
}

constexpr ModuleCost kOfImages = {v1::MODULE_VISION, Media::kImages, 2, 0.5};

// Towers attend within an image, a language model within the sample.
TEST(SampleCostTest, IsLinearPlusQuadratic) {
  v1::Balance::Cost coefficients;
  coefficients.mutable_vision()->set_linear(2);
  coefficients.mutable_vision()->set_quadratic(0.5);
  coefficients.mutable_language()->set_linear(3);
  coefficients.mutable_language()->set_quadratic(0.25);
  const std::vector<ModuleCost> costs = GetModuleCosts(coefficients);
  const SampleSize size = TwoImages();
  const double vision = 2 * 40 + 0.5 * (24 * 24 + 16 * 16);
  const double language = 3 * 7 + 0.25 * 7 * 7;
  ASSERT_EQ(costs.size(), 3u);
  EXPECT_EQ(costs[0].module, v1::MODULE_VISION);
  EXPECT_EQ(SampleCost(size, costs[0]), vision);
  EXPECT_EQ(costs[1].module, v1::MODULE_AUDIO);
  EXPECT_EQ(costs[2].module, v1::MODULE_LANGUAGE);
  EXPECT_EQ(SampleCost(size, costs[2]), language);
  EXPECT_EQ(JointCost(size, costs), vision + language);
}

// A model attends within a sequence of a pair, and each is padded.
TEST(SampleCostTest, OfAPairIsOfItsSequences) {
  SampleSize size = TwoImages();
  size.first_tokens = 3;
  const ModuleCost cost = {v1::MODULE_LANGUAGE, Media::kText, 3, 0.25};
  EXPECT_EQ(SampleCost(size, cost), 3 * 7 + 0.25 * (3 * 3 + 4 * 4));
  EXPECT_EQ(SampleCost(size, kOfImages), SampleCost(TwoImages(), kOfImages));
  EXPECT_EQ(PaddedTokens(size, 4), 4u + 4u);
  EXPECT_EQ(PaddedTokens(size, 1), 7u);
  EXPECT_EQ(PaddedTokens(TwoImages(), 4), 8u);
  EXPECT_EQ(PaddedSquares(size, 4), 16u + 16u);
  EXPECT_EQ(PaddedSquares(size, 1), 9u + 16u);
  EXPECT_EQ(PaddedSquares(TwoImages(), 4), 64u);
}

// Forward and the gradients of inputs and of weights take a third each.
TEST(SampleCostTest, FrozenModulesCostLess) {
  v1::Balance::Cost coefficients;
  coefficients.mutable_vision()->set_linear(6);
  coefficients.mutable_vision()->set_quadratic(3);
  coefficients.mutable_vision()->set_backward(
      v1::Balance::Coefficients::BACKWARD_NONE);
  coefficients.mutable_language()->set_linear(6);
  coefficients.mutable_language()->set_backward(
      v1::Balance::Coefficients::BACKWARD_INPUTS);
  std::vector<ModuleCost> costs = GetModuleCosts(coefficients);
  EXPECT_DOUBLE_EQ(costs[0].linear, 2);
  EXPECT_DOUBLE_EQ(costs[0].quadratic, 1);
  EXPECT_DOUBLE_EQ(costs[2].linear, 4);
  coefficients.mutable_vision()->set_backward(
      v1::Balance::Coefficients::BACKWARD_FULL);
  EXPECT_EQ(GetModuleCosts(coefficients)[0].linear, 6);
}

// An audio encoder attends within a clip; rows beyond a clip's end are not
// counted.
TEST(SampleCostTest, OfAudioIsOfItsFrames) {
  SampleSize size = TwoImages();
  EXPECT_FALSE(HasMedia(size, Media::kAudio));
  size.clip_rows = {302, 50};
  size.clip_frames = {300, 48};
  EXPECT_TRUE(HasMedia(size, Media::kAudio));
  const ModuleCost audio = {v1::MODULE_AUDIO, Media::kAudio, 2, 0.5};
  EXPECT_EQ(SampleCost(size, audio),
            2 * (300 + 48) + 0.5 * (300 * 300 + 48 * 48));
}

// Of a video's five frames of 4*4 patches, three temporal patches attend, each
// within itself; an image of two crops counts both.
TEST(SampleCostTest, AVideoCountsItsTemporalPatches) {
  SampleSize size = TwoImages();
  size.crops = {2, 5};
  size.grid_t = {0, 3};
  ImageGrid frame = {};
  frame.grid_h = 4;
  frame.grid_w = 4;
  size.grids.insert(size.grids.end(), 5, frame);
  size.patches += 3 * 16;
  EXPECT_EQ(SampleCost(size, kOfImages),
            2 * (40 + 48) + 0.5 * (24 * 24 + 16 * 16 + 3 * 16 * 16));
}

TEST(SampleCostTest, ASampleWithoutImagesCostsTheirEncoderNothing) {
  SampleSize size;
  size.tokens = 7;
  EXPECT_EQ(SampleCost(size, kOfImages), 0);
  EXPECT_FALSE(HasMedia(size, Media::kImages));
  EXPECT_TRUE(HasMedia(size, Media::kText));
}

}  // namespace
}  // namespace ballast
