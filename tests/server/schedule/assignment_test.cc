#include "server/schedule/assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using Rows = std::vector<std::vector<Benefit>>;

int64_t Gain(const Rows& rows, const std::vector<uint32_t>& columns) {
  int64_t gain = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    for (const Benefit& benefit : rows[row]) {
      if (benefit.column == columns[row]) gain += benefit.gain;
    }
  }
  return gain;
}

int64_t BestGain(const Rows& rows) {
  std::vector<uint32_t> columns(rows.size());
  std::iota(columns.begin(), columns.end(), 0);
  int64_t best = 0;
  do {
    best = std::max(best, Gain(rows, columns));
  } while (std::next_permutation(columns.begin(), columns.end()));
  return best;
}

TEST(AssignmentTest, RowsWithoutGainTakeTheRemainingColumnsInOrder) {
  EXPECT_THAT(MaxGainAssignment({{}, {{0, 5}}, {}}, 0), ElementsAre(1, 0, 2));
  EXPECT_THAT(MaxGainAssignment({}, 0), ElementsAre());
}

TEST(AssignmentTest, GivesUpABestColumnForTheSum) {
  // Both rows gain from column 0, the second from no other.
  EXPECT_THAT(MaxGainAssignment({{{0, 10}, {1, 9}}, {{0, 8}}}, 0),
              ElementsAre(1, 0));
  // The first row's gain exceeds that of the second.
  EXPECT_THAT(MaxGainAssignment({{{0, 10}, {1, 1}}, {{0, 8}}}, 0),
              ElementsAre(0, 1));
}

TEST(AssignmentTest, WithinTheSlackOfTheBestPermutation) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    const uint32_t n = 1 + random() % 7;
    Rows rows(n);
    for (auto& row : rows) {
      for (uint32_t column = 0; column < n; ++column) {
        if (random() % 3 != 0) continue;
        row.push_back({column, 1 + static_cast<int64_t>(random() % 20)});
      }
    }
    const int64_t best = BestGain(rows);
    for (const int64_t slack : {0, 1, 3}) {
      const std::vector<uint32_t> columns = MaxGainAssignment(rows, slack);
      std::vector<uint32_t> sorted = columns;
      std::sort(sorted.begin(), sorted.end());
      for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(sorted[i], i);
      EXPECT_LE(Gain(rows, columns), best);
      EXPECT_GE(Gain(rows, columns), best - n * slack)
          << "round " << round << " slack " << slack;
    }
  }
}

// By comparisons.
std::vector<uint32_t> Sorted(const std::vector<int64_t>& costs) {
  std::vector<uint32_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return costs[a] > costs[b]; });
  return order;
}

TEST(CostOrderTest, OfEqualCostsTheFirstComesFirst) {
  EXPECT_EQ(CostliestFirst({3, 5, 3, 9}), (std::vector<uint32_t>{3, 1, 0, 2}));
  EXPECT_EQ(CostliestFirst({}), std::vector<uint32_t>());
  const std::vector<int64_t> equal(5000, 7);
  EXPECT_EQ(CostliestFirst(equal), Sorted(equal));
}

class CostOrderWidthTest
    : public ::testing::TestWithParam<std::tuple<size_t, int>> {};

TEST_P(CostOrderWidthTest, IsThatOfAStableSort) {
  const auto [size, bits] = GetParam();
  std::mt19937_64 random(size + bits);
  std::vector<int64_t> costs(size);
  for (int64_t& cost : costs) cost = random() >> (64 - bits);
  EXPECT_EQ(CostliestFirst(costs), Sorted(costs));
}

INSTANTIATE_TEST_SUITE_P(
    Widths, CostOrderWidthTest,
    ::testing::Combine(::testing::Values(1, 511, 512, 513, 20000),
                       ::testing::Values(1, 5, 11, 12, 22, 23, 36, 60, 63)));

}  // namespace

}  // namespace ballast
