#include "server/schedule/group_placement.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;

// Bytes that move, those between servers counted kBetweenServers times.
int64_t Moved(const Groups& groups, const std::vector<ModuleRanks>& modules,
              const std::vector<std::vector<uint64_t>>& bytes) {
  int64_t moved = 0;
  for (size_t m = 0; m < modules.size(); ++m) {
    const ModuleRanks& ranks = modules[m];
    const uint32_t groups_per_rank = groups.size() / ranks.dp;
    const uint32_t samples_per_rank = bytes[m].size() / ranks.dp;
    for (uint32_t g = 0; g < groups.size(); ++g) {
      for (const uint32_t i : groups[g]) {
        const uint32_t reader = i / samples_per_rank;
        const uint32_t owner = g / groups_per_rank;
        if (reader == owner) continue;
        const bool crosses =
            !ranks.server_of_rank.empty() &&
            ranks.server_of_rank[reader] != ranks.server_of_rank[owner];
        moved += (crosses ? kBetweenServers : 1) * bytes[m][i];
      }
    }
  }
  return moved;
}

TEST(PlaceGroupsTest, GroupsStayWithTheirReaders) {
  // Group 0 holds what rank 1 reads, and the other way round.
  const Groups placed =
      PlaceGroups({{2, 3}, {0, 1}}, {{v1::MODULE_VISION, 2, {}}},
                  {{5, 5, 5, 5}});
  EXPECT_THAT(placed, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST(PlaceGroupsTest, MovesAsLittleAsTheBestNumbering) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    constexpr uint32_t kGrid = 6;
    std::vector<ModuleRanks> modules = {
        {v1::MODULE_VISION, round % 2 ? 2u : 6u, {}},
        {v1::MODULE_LANGUAGE, 3, {}}};
    if (round % 3 == 0) {
      modules[0].server_of_rank =
          round % 2 ? std::vector<uint32_t>{0, 1}
                    : std::vector<uint32_t>{0, 0, 0, 1, 1, 1};
      modules[1].server_of_rank = {0, 0, 1};
    }
    std::vector<uint32_t> samples(4 * kGrid);
    std::iota(samples.begin(), samples.end(), 0);
    std::shuffle(samples.begin(), samples.end(), random);
    Groups groups(kGrid);
    std::vector<std::vector<uint64_t>> bytes(2);
    for (uint32_t i = 0; i < samples.size(); ++i) {
      groups[i % kGrid].push_back(samples[i]);
      bytes[0].push_back(random() % 100);
      bytes[1].push_back(random() % 10);
    }
    const Groups placed = PlaceGroups(groups, modules, bytes);
    Groups numbered = placed;
    std::sort(numbered.begin(), numbered.end());
    int64_t best = Moved(placed, modules, bytes);
    const int64_t found = best;
    do {
      best = std::min(best, Moved(numbered, modules, bytes));
    } while (std::next_permutation(numbered.begin(), numbered.end()));
    EXPECT_EQ(found, best) << "round " << round;
    std::sort(groups.begin(), groups.end());
    Groups sorted = placed;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, groups);
  }
}

}  // namespace
}  // namespace ballast
