#include "server/schedule/sample_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(AlignPresenceTest, DoesNotChangeARankThatHasAnImage) {
  Groups groups = {{0, 1}, {2, 3}};
  EXPECT_THAT(
      AlignPresence({1, 1, 1, 1}, {true, false, false, true}, 1, &groups),
      IsEmpty());
  EXPECT_THAT(groups, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST(AlignPresenceTest, NoImagesNeedNoDummies) {
  Groups groups = {{0}, {1}};
  EXPECT_THAT(AlignPresence({1, 1}, {false, false}, 1, &groups), IsEmpty());
}

TEST(AlignPresenceTest, TakesTheSwapWithTheSmallestLoad) {
  // Rank 1 has text only. Giving it sample 0 (cost 9) for sample 3 (cost 3)
  // leaves 7 and 11; every other pair leaves 12 with one of them.
  Groups groups = {{0, 1}, {2, 3}};
  EXPECT_THAT(
      AlignPresence({9, 4, 2, 3}, {true, true, false, false}, 1, &groups),
      IsEmpty());
  EXPECT_THAT(groups, ElementsAre(ElementsAre(3, 1), ElementsAre(2, 0)));
}

TEST(AlignPresenceTest, NamesDummiesIfImagesAreTooFew) {
  Groups groups = {{0}, {1}, {2}, {3}};
  EXPECT_THAT(
      AlignPresence({5, 0, 5, 0}, {true, false, true, false}, 1, &groups),
      ElementsAre(1, 3));
  // Two groups for each rank; ranks 0 and 1 have one image each.
  EXPECT_THAT(
      AlignPresence({5, 0, 5, 0}, {true, false, true, false}, 2, &groups),
      IsEmpty());
}

TEST(AlignPresenceTest, ARankWithoutSamplesReceivesOne) {
  Groups groups = {{0, 1, 2}, {}};
  EXPECT_THAT(AlignPresence({5, 4, 1}, {true, true, false}, 1, &groups),
              IsEmpty());
  EXPECT_EQ(groups[1].size(), 1u);
  EXPECT_LT(groups[1][0], 2u);
}

TEST(AlignPresenceTest, AlignsWheneverThereAreEnoughImages) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    const uint32_t ranks = 1 + random() % 6;
    const uint32_t per_rank = 1 + random() % 2;
    const uint32_t n = ranks * per_rank * (1 + random() % 4);
    std::vector<double> costs(n);
    std::vector<bool> has_media(n);
    uint32_t images = 0;
    for (uint32_t i = 0; i < n; ++i) {
      has_media[i] = random() % 3 == 0;
      images += has_media[i];
      costs[i] = has_media[i] ? 1 + random() % 100 : 0;
    }
    Groups groups(ranks * per_rank);
    for (uint32_t i = 0; i < n; ++i) {
      groups[random() % groups.size()].push_back(i);
    }
    const auto dummies = AlignPresence(costs, has_media, per_rank, &groups);
    EXPECT_EQ(dummies.size(),
              images == 0 || images >= ranks ? 0 : ranks - images);
    EXPECT_EQ(RanksWithout(has_media, per_rank, groups), dummies);
    std::vector<bool> seen(n, false);
    for (const auto& group : groups) {
      for (const uint32_t i : group) {
        EXPECT_FALSE(seen[i]);
        seen[i] = true;
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), n);
  }
}

constexpr int64_t kLimit = 10'000;
constexpr int64_t kMinRoom = 10;

// Samples of ranks, of which some move and some ranks become heavier.
struct Ranks {
  std::vector<int64_t> costs;
  std::vector<uint32_t> owners;
  std::vector<int64_t> loads;

  bool HasRoom(uint32_t rank) const { return kLimit - loads[rank] >= kMinRoom; }
  // Whether a rank with room may take `give` for the sample.
  bool MayTake(uint32_t sample, int64_t give, int64_t least) const {
    const uint32_t rank = owners[sample];
    const int64_t amount = give - costs[sample];
    return HasRoom(rank) && amount >= least && amount <= kLimit - loads[rank];
  }
  int64_t MostRoom() const {
    return kLimit - *std::min_element(loads.begin(), loads.end());
  }
};

Ranks Draw(uint32_t ranks, uint32_t samples, std::mt19937* random) {
  Ranks drawn;
  for (uint32_t r = 0; r < ranks; ++r) {
    drawn.loads.push_back(8000 + (*random)() % 2000);
  }
  for (uint32_t i = 0; i < samples; ++i) {
    drawn.costs.push_back(100 + (*random)() % 3000);
    drawn.owners.push_back((*random)() % ranks);
  }
  return drawn;
}

TEST(SampleFinderTest, FindsWhatTheLightestRankHas) {
  const std::vector<int64_t> loads = {9000, 8000, 8500};
  const std::vector<uint32_t> owners = {0, 1, 2, 2};
  SampleFinder finder(loads, owners, kLimit, kMinRoom, 3000);
  finder.Add(0, 2000);
  finder.Add(1, 100);
  finder.Add(2, 2050);
  finder.Add(3, 2800);
  std::optional<SampleFinder::Found> found;
  // Rank 1 is lighter, but 2900 less 100 is more than its room.
  EXPECT_GT(finder.Find({2900, 200, 2000}, &found), 0u);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rank, 2u);
  EXPECT_EQ(found->sample, 2u);
  // Nothing is cheaper by 200 than what is cheapest.
  found.reset();
  finder.Find({250, 200, 2000}, &found);
  finder.FindAmongAll({250, 200, 2000}, &found);
  EXPECT_FALSE(found.has_value());
}

class SampleFinderSeedTest : public ::testing::TestWithParam<uint32_t> {};

// Against a search through all samples, while samples move and loads grow.
TEST_P(SampleFinderSeedTest, FindsTheLightestThatMayTake) {
  std::mt19937 random(GetParam());
  Ranks ranks = Draw(20, 160, &random);
  SampleFinder finder(ranks.loads, ranks.owners, kLimit, kMinRoom, 3100);
  for (uint32_t i = 0; i < ranks.costs.size(); ++i) {
    finder.Add(i, ranks.costs[i]);
  }
  int times_found = 0;
  for (int round = 0; round < 400; ++round) {
    const int64_t give = random() % 3200;
    const int64_t least = 1 + random() % 300;
    std::optional<SampleFinder::Found> first, best;
    finder.Find({give, least, ranks.MostRoom()}, &first);
    finder.FindAmongAll({give, least, ranks.MostRoom()}, &best);
    std::optional<std::tuple<int64_t, uint32_t, uint32_t>> wanted;
    for (uint32_t i = 0; i < ranks.costs.size(); ++i) {
      if (!ranks.MayTake(i, give, least)) continue;
      const uint32_t rank = ranks.owners[i];
      const std::tuple<int64_t, uint32_t, uint32_t> each = {ranks.loads[rank],
                                                            rank, i};
      if (!wanted || each < *wanted) wanted = each;
    }
    ASSERT_EQ(best.has_value(), wanted.has_value());
    if (best) {
      EXPECT_EQ(std::make_tuple(best->load, best->rank, best->sample), *wanted);
    }
    // The first of each bucket may miss one, but never be wrong.
    if (first) {
      ++times_found;
      EXPECT_TRUE(ranks.MayTake(first->sample, give, least));
      EXPECT_EQ(ranks.owners[first->sample], first->rank);
      EXPECT_FALSE(*first < *best);
    }
    // Some rank takes a sample of another.
    const uint32_t sample = random() % ranks.costs.size();
    const uint32_t taker = random() % ranks.loads.size();
    const int64_t amount = random() % 100;
    if (ranks.loads[taker] + amount > kLimit) continue;
    ranks.loads[taker] += amount;
    ranks.owners[sample] = taker;
    if (ranks.HasRoom(taker)) finder.Add(sample, ranks.costs[sample]);
  }
  EXPECT_GT(times_found, 100);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SampleFinderSeedTest, ::testing::Range(0u, 8u));

}  // namespace

}  // namespace ballast
