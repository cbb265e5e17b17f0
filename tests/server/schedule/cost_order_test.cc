#include "server/schedule/cost_order.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

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
