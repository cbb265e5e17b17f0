#include "server/schedule/presence.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ballast
