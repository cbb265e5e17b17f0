#include "server/storage/cache_policy.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NextUsesTest, FindsTheFirstUseWithinTheRange) {
  // Position p uses owners p % 5 and 100 + p.
  const auto add = [](uint64_t at, std::vector<uint64_t>* owners) {
    owners->push_back(at % 5);
    owners->push_back(100 + at);
  };
  EXPECT_THAT(NextUses({0, 3, 107, 7, 100, 3}, 4, 50, add),
              ElementsAre(5, 8, 7, kNeverUsed, kNeverUsed, 8));
  EXPECT_THAT(NextUses({0}, 4, 5, add), ElementsAre(kNeverUsed));
}

TEST(NextUsesTest, StopsOnceAllAreFound) {
  uint64_t asked = 0;
  NextUses({1, 2}, 0, uint64_t{1} << 60,
           [&](uint64_t at, std::vector<uint64_t>* owners) {
             ++asked;
             owners->push_back(at);
           });
  EXPECT_EQ(asked, 3u);
}

TEST(ChooseVictimsTest, WhatIsNeededLastGoesFirst) {
  const std::vector<CacheEntry> entries = {
      {10, 50}, {10, kNeverUsed}, {10, 70}, {30, 70}, {10, 20}};
  EXPECT_THAT(ChooseVictims(entries, 10, 0, 30), ElementsAre(1));
  EXPECT_THAT(ChooseVictims(entries, 41, 0, 30), ElementsAre(1, 3, 2));
  // Room to spare comes from the same order.
  EXPECT_THAT(ChooseVictims(entries, 10, 1, 30), ElementsAre(1, 3));
}

TEST(ChooseVictimsTest, NothingThatIsNeededEarlierIsGivenUp) {
  const std::vector<CacheEntry> entries = {{10, 5}, {10, 40}, {10, 30}};
  EXPECT_THAT(ChooseVictims(entries, 10, 100, 30), ElementsAre(1));
  EXPECT_THAT(ChooseVictims(entries, 11, 0, 30), IsEmpty());
  EXPECT_THAT(ChooseVictims({}, 1, 0, 0), IsEmpty());
}

// Belady's rule has the fewest misses; any other choice at the first eviction
// has as many or more. Brute force over small caches is the oracle.
int BestMisses(const std::vector<uint64_t>& uses, size_t at,
               std::set<uint64_t> held, size_t capacity) {
  while (at < uses.size() && held.count(uses[at]) != 0) ++at;
  if (at == uses.size()) return 0;
  if (held.size() < capacity) {
    held.insert(uses[at]);
    return 1 + BestMisses(uses, at + 1, held, capacity);
  }
  int best = 1 << 20;
  for (const uint64_t out : std::set<uint64_t>(held)) {
    std::set<uint64_t> next = held;
    next.erase(out);
    next.insert(uses[at]);
    best = std::min(best, 1 + BestMisses(uses, at + 1, next, capacity));
  }
  return best;
}

TEST(ChooseVictimsTest, HasAsFewMissesAsPossible) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    std::vector<uint64_t> uses(11);
    for (uint64_t& use : uses) use = random() % 5;
    int misses = 0;
    std::vector<uint64_t> held;
    for (size_t at = 0; at < uses.size(); ++at) {
      if (std::count(held.begin(), held.end(), uses[at]) != 0) continue;
      ++misses;
      if (held.size() == 3) {
        const std::vector<uint64_t> next =
            NextUses(held, at + 1, uses.size(),
                     [&](uint64_t p, std::vector<uint64_t>* o) {
                       o->push_back(uses[p]);
                     });
        std::vector<CacheEntry> entries;
        for (const uint64_t use : next) entries.push_back({1, use});
        const std::vector<size_t> victims = ChooseVictims(entries, 1, 0, at);
        ASSERT_EQ(victims.size(), 1u);
        held.erase(held.begin() + victims[0]);
      }
      held.push_back(uses[at]);
    }
    EXPECT_EQ(misses, BestMisses(uses, 0, {}, 3)) << "round " << round;
  }
}

}  // namespace
}  // namespace ballast
