#include "server/schedule/pipeline_order.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

std::vector<StageTimes> Apply(const std::vector<StageTimes>& micro_batches,
                              const std::vector<uint32_t>& order) {
  std::vector<StageTimes> ordered;
  for (const uint32_t m : order) ordered.push_back(micro_batches[m]);
  return ordered;
}

// For equal stages with forward time f and backward time 2f, 1F1B takes (n + p
// - 1) * 3f.
TEST(PipelineSimulatorTest, EqualStagesFollowTheClosedForm) {
  for (const size_t p : {1, 2, 4, 7}) {
    for (const size_t n : {1, 2, 5, 16}) {
      const std::vector<StageTimes> micro_batches(n, StageTimes(p, 0.5));
      EXPECT_THAT(SimulateOneForwardOneBackward(micro_batches),
                  DoubleEq((n + p - 1) * 1.5))
          << p << " stages, " << n << " micro-batches";
    }
  }
}

// Two stages, two micro-batches, by hand. Stage 0: F0 0-1, F1 1-4, B0, B1.
// Stage 1 (time 1): F0 1-2, B0 2-4, F1 4-5, B1 5-7. Stage 0: B0 (2) 4-6, B1 (6)
// 7-13.
TEST(PipelineSimulatorTest, VariableFirstStageByHand) {
  EXPECT_THAT(SimulateOneForwardOneBackward({{1, 1}, {3, 1}}), DoubleEq(13));
}

TEST(PipelineSimulatorTest, NoMicroBatchesTakeNoTime) {
  EXPECT_THAT(SimulateOneForwardOneBackward({}), DoubleEq(0));
}

TEST(PipelineOrderTest, KeepsTheOrderIfNothingIsGained) {
  EXPECT_THAT(PipelineOrder({}), ElementsAre());
  EXPECT_THAT(PipelineOrder({{1, 1}}), ElementsAre(0));
  EXPECT_THAT(PipelineOrder({{1, 1}, {1, 1}, {1, 1}}), ElementsAre(0, 1, 2));
}

TEST(PipelineOrderTest, NeverWorseAndOftenBetter) {
  std::mt19937 random(11);
  double before = 0, after = 0, ideal = 0;
  for (int round = 0; round < 300; ++round) {
    const size_t p = 2 + random() % 6;
    const size_t n = 2 + random() % 20;
    std::vector<StageTimes> micro_batches(n, StageTimes(p, 10));
    double first = 0;
    for (StageTimes& times : micro_batches) {
      times[0] = 2 + random() % 17;
      first += times[0];
    }
    std::vector<uint32_t> order = PipelineOrder(micro_batches);
    const double as_is = SimulateOneForwardOneBackward(micro_batches);
    const double ordered =
        SimulateOneForwardOneBackward(Apply(micro_batches, order));
    EXPECT_LE(ordered, as_is);
    before += as_is;
    after += ordered;
    ideal += 3 * std::max(first, 10.0 * n);
    std::sort(order.begin(), order.end());
    std::vector<uint32_t> all(n);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order, all);
  }
  // Bubbles: the time beyond the busiest stage's own work.
  EXPECT_LT(after - ideal, 0.9 * (before - ideal));
}

TEST(PipelineOrderTest, NearTheBestOfAllOrdersOfSmallCases) {
  std::mt19937 random(12);
  for (int round = 0; round < 30; ++round) {
    std::vector<StageTimes> micro_batches(6, StageTimes(3, 10));
    for (StageTimes& times : micro_batches) times[0] = 2 + random() % 17;
    const double found = SimulateOneForwardOneBackward(
        Apply(micro_batches, PipelineOrder(micro_batches)));
    std::vector<uint32_t> order(6);
    std::iota(order.begin(), order.end(), 0);
    double best = found;
    do {
      best = std::min(
          best, SimulateOneForwardOneBackward(Apply(micro_batches, order)));
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_LE(found, 1.03 * best) << "round " << round;
  }
}

}  // namespace
}  // namespace ballast
