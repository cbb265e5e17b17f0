#include "server/schedule/assignment.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ballast
