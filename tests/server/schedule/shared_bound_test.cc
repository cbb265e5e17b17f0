#include "server/schedule/shared_bound.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
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

// The formula, over every number of ranks that hold more than k.
int64_t ByFormula(std::vector<int64_t> costs, size_t ranks) {
  std::sort(costs.begin(), costs.end(), std::greater<int64_t>());
  int64_t bound = 0;
  for (size_t k = 1; k <= 7; ++k) {
    for (size_t m = k * ranks + 1; m <= std::min(costs.size(), (k + 1) * ranks);
         ++m) {
      int64_t least = std::numeric_limits<int64_t>::max();
      for (size_t s = 1; s <= m - k * ranks; ++s) {
        int64_t sum = 0;
        for (size_t i = 0; i < m - k * (ranks - s); ++i) {
          sum += costs[m - 1 - i];
        }
        least = std::min<int64_t>(least, sum / static_cast<int64_t>(s));
      }
      bound = std::max(bound, least);
    }
  }
  return bound;
}

// Reports the bound if it is above the mean and the largest cost.
void ExpectFormulas(const std::vector<int64_t>& costs, uint32_t ranks) {
  const int64_t sum = std::accumulate(costs.begin(), costs.end(), int64_t{0});
  const int64_t known =
      std::max(sum / ranks, *std::max_element(costs.begin(), costs.end()));
  const int64_t wanted = ByFormula(costs, ranks);
  EXPECT_EQ(SharedBound(costs, ranks, known), wanted > known ? wanted : 0);
  EXPECT_EQ(SharedBound(costs, ranks, 0), wanted);
}

// Pages and thumbnails, with few or many pages of a narrow or a wide range.
TEST_P(SharedBoundSeedTest, IsTheFormulasOfTwoKinds) {
  std::mt19937 random(GetParam());
  const uint32_t ranks = 20 + random() % 44;
  const uint32_t range = 1 + random() % 3000;
  const uint32_t pages = 10 + random() % 40;
  std::vector<int64_t> costs(8 * ranks);
  for (int64_t& cost : costs) {
    cost =
        random() % 100 < pages ? 2000 + random() % range : 80 + random() % 40;
  }
  ExpectFormulas(costs, ranks);
}

// Where costs differ much, fewer ranks with more samples have less.
TEST_P(SharedBoundSeedTest, IsTheFormulasOfALongTail) {
  std::mt19937 random(GetParam());
  const uint32_t ranks = 20 + random() % 44;
  std::vector<int64_t> costs((2 + random() % 3) * ranks);
  for (int64_t& cost : costs) cost = (1 << random() % 14) + random() % 16;
  ExpectFormulas(costs, ranks);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SharedBoundSeedTest, ::testing::Range(0u, 60u));

}  // namespace
}  // namespace ballast
