#include "server/schedule/encoder_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "server/schedule/group_order.h"

namespace ballast {
namespace {

std::vector<int64_t> LoadsOf(const std::vector<EncoderSample>& samples,
                             const std::vector<uint32_t>& owners,
                             uint32_t ranks) {
  std::vector<int64_t> loads(ranks, 0);
  for (size_t i = 0; i < samples.size(); ++i) {
    loads[owners[i]] += samples[i].cost;
  }
  return loads;
}

int64_t LargestLoad(const std::vector<EncoderSample>& samples,
                    const std::vector<uint32_t>& owners, uint32_t ranks) {
  const std::vector<int64_t> loads = LoadsOf(samples, owners, ranks);
  return *std::max_element(loads.begin(), loads.end());
}

int64_t WeightedTokens(const std::vector<EncoderSample>& samples,
                       const std::vector<uint32_t>& owners,
                       const ServerOfRank& servers) {
  const MovedTokens moved =
      CountMovedTokens(samples, owners, servers, servers, true);
  return moved.within_servers + kBetweenServers * moved.between_servers;
}

EncoderRanks Ranks(uint32_t count, ServerOfRank servers = {}) {
  EncoderRanks ranks;
  ranks.count = count;
  ranks.server_of_rank = std::move(servers);
  return ranks;
}

// `each` samples a rank; costs are in proportion to tokens.
std::vector<EncoderSample> Draw(uint32_t ranks, uint32_t each, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<EncoderSample> samples(ranks * each);
  for (uint32_t i = 0; i < samples.size(); ++i) {
    samples[i].tokens = 200 + random() % 400;
    samples[i].cost = 4 * samples[i].tokens;
    samples[i].home = i / each;
  }
  return samples;
}

TEST(PlaceEncoderTest, EvenLoadsStayAtHome) {
  const std::vector<EncoderSample> samples = {
      {8, 2, 0}, {4, 1, 1}, {4, 1, 1}, {8, 2, 2}};
  EXPECT_EQ(PlaceEncoder(samples, Ranks(3)),
            (std::vector<uint32_t>{0, 1, 1, 2}));
}

// Rank 0 has 40 of 48; one sample of 8 and two of 16 could leave it.
TEST(PlaceEncoderTest, GivesAwayWhatIsTooMuch) {
  const std::vector<EncoderSample> samples = {
      {16, 4, 0}, {16, 4, 0}, {8, 2, 0}, {8, 2, 1}};
  const std::vector<uint32_t> owners = PlaceEncoder(samples, Ranks(2));
  EXPECT_EQ(LargestLoad(samples, owners, 2), 24);
  EXPECT_EQ(CountMovedTokens(samples, owners, {}, {}, true).within_servers, 4);
}

TEST(PlaceEncoderTest, PrefersARankOfTheSameServer) {
  // Rank 0 must give one sample to 1, of its server, or to 2 or 3.
  const std::vector<EncoderSample> samples = {
      {8, 2, 0}, {8, 2, 0}, {8, 2, 2}, {8, 2, 3}};
  EXPECT_EQ(PlaceEncoder(samples, Ranks(4, {0, 0, 1, 1}))[2], 2);
  const MovedTokens moved =
      CountMovedTokens(samples, PlaceEncoder(samples, Ranks(4, {0, 0, 1, 1})),
                       {0, 0, 1, 1}, {0, 0, 1, 1}, true);
  EXPECT_EQ(moved.within_servers, 2);
  EXPECT_EQ(moved.between_servers, 0);
}

TEST(PlaceEncoderTest, EveryRankGetsASampleIfThereAreEnough) {
  // The largest cost is the bound, so nothing has to move for balance.
  const std::vector<EncoderSample> samples = {
      {100, 25, 0}, {8, 2, 1}, {12, 3, 1}, {16, 4, 1}};
  EncoderRanks ranks = Ranks(3);
  EXPECT_EQ(PlaceEncoder(samples, ranks), (std::vector<uint32_t>{0, 2, 1, 1}));
  ranks.align = false;
  EXPECT_EQ(PlaceEncoder(samples, ranks), (std::vector<uint32_t>{0, 1, 1, 1}));
}

TEST(PlaceEncoderTest, FewerSamplesThanRanksLeaveRanksEmpty) {
  const std::vector<uint32_t> owners =
      PlaceEncoder({{8, 2, 1}, {8, 2, 1}}, Ranks(4));
  EXPECT_NE(owners[0], owners[1]);
  EXPECT_EQ(PlaceEncoder({}, Ranks(4)), std::vector<uint32_t>());
}

TEST(PlaceEncoderTest, SkipBelowLeavesNearlyEvenLoads) {
  const std::vector<EncoderSample> samples = {
      {80, 20, 0}, {20, 5, 0}, {90, 22, 1}};
  EncoderRanks ranks = Ranks(2);
  ranks.skip_below = 0.06;
  EXPECT_EQ(PlaceEncoder(samples, ranks), (std::vector<uint32_t>{0, 0, 1}));
}

class PlaceEncoderSeedTest : public ::testing::TestWithParam<uint32_t> {};

// No renumbering of the ranks' sets moves fewer tokens: all of them are tried.
TEST_P(PlaceEncoderSeedTest, NoOtherNumberingMovesLess) {
  constexpr uint32_t kRanks = 6;
  for (const ServerOfRank& servers :
       {ServerOfRank{}, ServerOfRank{0, 0, 0, 1, 1, 1}}) {
    const std::vector<EncoderSample> samples = Draw(kRanks, 4, GetParam());
    const std::vector<uint32_t> owners =
        PlaceEncoder(samples, Ranks(kRanks, servers));
    std::vector<uint32_t> number(kRanks);
    std::iota(number.begin(), number.end(), 0);
    int64_t least = std::numeric_limits<int64_t>::max();
    do {
      std::vector<uint32_t> renumbered;
      for (const uint32_t owner : owners) renumbered.push_back(number[owner]);
      least = std::min(least, WeightedTokens(samples, renumbered, servers));
    } while (std::next_permutation(number.begin(), number.end()));
    EXPECT_EQ(WeightedTokens(samples, owners, servers), least);
  }
}

TEST_P(PlaceEncoderSeedTest, ReachesTheBoundWithEightSamplesARank) {
  constexpr uint32_t kRanks = 32;
  const std::vector<EncoderSample> samples = Draw(kRanks, 8, GetParam());
  const std::vector<uint32_t> owners = PlaceEncoder(samples, Ranks(kRanks));
  int64_t sum = 0;
  for (const EncoderSample& sample : samples) sum += sample.cost;
  EXPECT_LE(LargestLoad(samples, owners, kRanks), sum / kRanks * 1.001 + 1);
  // A sample moves only if its owner is not its home.
  const MovedTokens moved = CountMovedTokens(samples, owners, {}, {}, true);
  uint64_t away = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (owners[i] != samples[i].home) away += samples[i].tokens;
  }
  EXPECT_EQ(moved.within_servers, away);
  EXPECT_EQ(moved.between_servers, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlaceEncoderSeedTest, ::testing::Range(0u, 8u));

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
