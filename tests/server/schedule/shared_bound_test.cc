#include "server/schedule/shared_bound.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

// The least possible largest load: tries every partition.
int64_t Best(const std::vector<int64_t>& costs, uint32_t ranks) {
  int64_t best = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> loads(ranks, 0);
  const std::function<void(size_t)> place = [&](size_t i) {
    if (i == costs.size()) {
      best = std::min(best, *std::max_element(loads.begin(), loads.end()));
      return;
    }
    for (int64_t& load : loads) {
      load += costs[i];
      place(i + 1);
      load -= costs[i];
    }
  };
  place(0);
  return best;
}

TEST(SharedBoundTest, OneRankHoldsTwoOfThree) {
  // Mean 5; two of the three share a rank.
  EXPECT_EQ(SharedBound({3, 4, 3}, 2, 5), 6);
  // Three ranks have room for each.
  EXPECT_EQ(SharedBound({3, 4, 3}, 3, 4), 0);
}

TEST(SharedBoundTest, NothingToShare) {
  EXPECT_EQ(SharedBound({}, 4, 0), 0);
  EXPECT_EQ(SharedBound({7}, 4, 7), 0);
  EXPECT_EQ(SharedBound({0, 0, 0}, 2, 0), 0);
}

class SharedBoundSeedTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(SharedBoundSeedTest, IsNeverAboveTheBestPartition) {
  std::mt19937 random(GetParam());
  const uint32_t ranks = 2 + random() % 2;
  std::vector<int64_t> costs(3 + random() % 7);
  for (int64_t& cost : costs) {
    cost = random() % 3 == 0 ? random() % 10 : 50 + random() % 20;
  }
  EXPECT_LE(SharedBound(costs, ranks, 0), Best(costs, ranks));
}

INSTANTIATE_TEST_SUITE_P(Seeds, SharedBoundSeedTest, ::testing::Range(0u, 60u));

}  // namespace
}  // namespace ballast
