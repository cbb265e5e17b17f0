#include "server/schedule/cost_model.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "proto/schedule.pb.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

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
  EXPECT_FALSE(HasMedia(size, Media::kRows));
  size.clip_rows = {302, 50};
  size.clip_frames = {300, 48};
  EXPECT_TRUE(HasMedia(size, Media::kRows));
  const ModuleCost audio = {v1::MODULE_AUDIO, Media::kRows, 2, 0.5};
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

// balance.cost_changes: new coefficients from stated steps on.

v1::Balance::Cost Cost(double vision, double language) {
  v1::Balance::Cost cost;
  cost.mutable_vision()->set_linear(vision);
  cost.mutable_language()->set_linear(language);
  return cost;
}

void AddChange(uint64_t step, const v1::Balance::Cost& cost,
               v1::Config* config) {
  auto* change = config->mutable_balance()->add_cost_changes();
  change->set_step(step);
  *change->mutable_cost() = cost;
}

class CostChangesTest : public ::testing::Test {
 protected:
  std::unique_ptr<Scheduler> Make(const v1::Config& config) const {
    auto scheduler = Scheduler::Create(config, {&index_});
    EXPECT_TRUE(scheduler.ok()) << scheduler.status();
    return *std::move(scheduler);
  }

  // The schedule as bytes, without the fingerprint.
  static std::string Bytes(const Scheduler& scheduler, uint64_t step) {
    auto schedule = scheduler.Schedule(step);
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(schedule->fingerprint(), scheduler.fingerprint().hash());
    schedule->clear_fingerprint();
    return schedule->SerializeAsString();
  }

  const FakeSourceIndex index_{FormulaSamples(97)};
  v1::Config config_ = JobConfig(2, 4, 32, 16);
};

TEST(CostAtTest, UsesTheLastChangeUpToTheStep) {
  v1::Config config;
  auto& balance = *config.mutable_balance();
  *balance.mutable_cost() = Cost(1, 0);
  EXPECT_EQ(CostAt(balance, ~uint64_t{0}).vision().linear(), 1);
  AddChange(10, Cost(2, 0), &config);
  AddChange(11, Cost(3, 0), &config);
  AddChange(~uint64_t{0}, Cost(4, 0), &config);
  const auto vision = [&](uint64_t step) {
    return CostAt(balance, step).vision().linear();
  };
  EXPECT_EQ(vision(0), 1);
  EXPECT_EQ(vision(9), 1);
  EXPECT_EQ(vision(10), 2);
  EXPECT_EQ(vision(11), 3);
  EXPECT_EQ(vision(~uint64_t{0} - 1), 3);
  EXPECT_EQ(vision(~uint64_t{0}), 4);
}

// Each step equals that of a job with these coefficients from the start.
TEST_F(CostChangesTest, EachStepUsesItsCoefficients) {
  for (const auto mode :
       {v1::Packing::MODE_SHARD, v1::Packing::MODE_SCHEDULED}) {
    config_.mutable_packing()->set_mode(mode);
    config_.mutable_packing()->set_align(1);
    config_.mutable_packing()->set_virtual_pipeline_group(1);
    auto second = config_, third = config_, changing = config_;
    *second.mutable_balance()->mutable_cost() = Cost(0, 1);
    *third.mutable_balance()->mutable_cost() = Cost(1, 20);
    AddChange(3, second.balance().cost(), &changing);
    AddChange(5, third.balance().cost(), &changing);
    const auto scheduler = Make(changing);
    const std::unique_ptr<Scheduler> constant[] = {Make(config_), Make(second),
                                                   Make(third)};
    for (uint64_t step = 0; step < 8; ++step) {
      const int which = step < 3 ? 0 : step < 5 ? 1 : 2;
      EXPECT_EQ(Bytes(*scheduler, step), Bytes(*constant[which], step)) << step;
    }
    EXPECT_NE(Bytes(*scheduler, 3), Bytes(*constant[0], 3));
    EXPECT_NE(Bytes(*scheduler, 5), Bytes(*constant[1], 5));
  }
}

TEST_F(CostChangesTest, TheFingerprintContainsTheChanges) {
  const v1::Fingerprint without = Make(config_)->fingerprint();
  for (const auto& entry : without.entries()) {
    EXPECT_EQ(entry.key().find("cost_changes"), std::string::npos);
  }
  AddChange(3, Cost(0.5, 1), &config_);
  const v1::Fingerprint with = Make(config_)->fingerprint();
  EXPECT_NE(with.hash(), without.hash());
  std::string step, linear;
  for (const auto& entry : with.entries()) {
    if (entry.key() == "balance.cost_changes.0000.step") step = entry.value();
    if (entry.key() == "balance.cost_changes.0000.cost.vision.linear") {
      linear = entry.value();
    }
  }
  EXPECT_EQ(step, "3");
  EXPECT_EQ(linear, "0.5");

  auto later = config_, dearer = config_, more = config_;
  later.mutable_balance()->mutable_cost_changes(0)->set_step(4);
  *dearer.mutable_balance()->mutable_cost_changes(0)->mutable_cost() =
      Cost(0.5, 2);
  AddChange(4, Cost(1, 1), &more);
  for (const auto& other : {later, dearer, more}) {
    EXPECT_NE(Make(other)->fingerprint().hash(), with.hash());
  }
}

}  // namespace

}  // namespace ballast
