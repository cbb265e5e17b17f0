#include "server/schedule/light_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace ballast {
namespace {

std::vector<uint32_t> Lightest(const LightRanks& light, size_t most = 3) {
  const LightRanks::List list = light.Lightest(most);
  return {list.ranks.begin(), list.ranks.begin() + list.count};
}

TEST(LightRanksTest, OfEqualLoadsTheLowerRankComesFirst) {
  LightRanks light(8);
  EXPECT_EQ(Lightest(light), std::vector<uint32_t>());
  light.Set(6, 10);
  light.Set(2, 10);
  EXPECT_EQ(Lightest(light), (std::vector<uint32_t>{2, 6}));
  light.Set(7, 9);
  light.Set(0, 11);
  EXPECT_EQ(Lightest(light), (std::vector<uint32_t>{7, 2, 6}));
  light.Remove(3);
  light.Remove(2);
  EXPECT_EQ(Lightest(light), (std::vector<uint32_t>{7, 6, 0}));
}

class LightRanksSeedTest : public ::testing::TestWithParam<uint32_t> {};

// Against a sorted set, over random changes.
TEST_P(LightRanksSeedTest, IsASortedSet) {
  std::mt19937 random(GetParam());
  constexpr uint32_t kRanks = 40;
  LightRanks light(kRanks);
  std::vector<int64_t> loads(kRanks, -1);  // -1: not in it
  for (int change = 0; change < 2000; ++change) {
    const uint32_t rank = random() % kRanks;
    if (random() % 3 == 0) {
      loads[rank] = -1;
      light.Remove(rank);
    } else {
      loads[rank] = random() % 50;
      light.Set(rank, loads[rank]);
    }
    std::set<std::pair<int64_t, uint32_t>> sorted;
    for (uint32_t r = 0; r < kRanks; ++r) {
      if (loads[r] >= 0) sorted.emplace(loads[r], r);
    }
    std::vector<uint32_t> wanted;
    for (const auto& [load, r] : sorted) {
      if (wanted.size() < LightRanks::kMostListed) wanted.push_back(r);
    }
    ASSERT_EQ(Lightest(light, LightRanks::kMostListed), wanted)
        << "change " << change;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, LightRanksSeedTest, ::testing::Range(0u, 8u));

}  // namespace
}  // namespace ballast
