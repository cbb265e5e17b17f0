#include "server/schedule/group_numbering.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;

// Bytes that move, where bytes between servers count kBetweenServers times.
int64_t Moved(const Groups& groups, uint32_t slots,
              const std::vector<ModuleShards>& shards) {
  const uint32_t grid = groups.size() / slots;
  int64_t moved = 0;
  for (const ModuleShards& module : shards) {
    const ServerOfRank& servers = module.ranks.server_of_rank;
    for (uint32_t g = 0; g < groups.size(); ++g) {
      for (const uint32_t i : groups[g]) {
        const uint32_t reader = module.reader[i];
        const uint32_t owner = g % grid / (grid / module.ranks.dp);
        if (reader == owner) continue;
        const bool crosses = !ShareServer(servers, reader, owner);
        moved += (crosses ? kBetweenServers : 1) * module.bytes[i];
      }
    }
  }
  return moved;
}

TEST(NumberGroupsTest, GroupsStayWithTheirReaders) {
  // Group 0 holds what rank 1 reads, and vice versa.
  const ModuleShards vision = {
      {v1::MODULE_VISION, 2, {}}, {0, 0, 1, 1}, {5, 5, 5, 5}};
  EXPECT_THAT(NumberGroups({{2, 3}, {0, 1}}, 1, {vision}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST(NumberGroupsTest, MovesAsLittleAsTheBestNumbering) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    constexpr uint32_t kGroups = 6;
    // One micro-batch of grid 6, or three of grid 2.
    const uint32_t slots = round % 4 == 3 ? 3 : 1;
    std::vector<ModuleShards> shards(2);
    shards[0].ranks = {
        v1::MODULE_VISION, slots == 3 || round % 2 ? 2u : 6u, {}};
    shards[1].ranks = {v1::MODULE_LANGUAGE, slots == 3 ? 1u : 3u, {}};
    if (round % 3 == 0) {
      for (ModuleShards& module : shards) {
        for (uint32_t rank = 0; rank < module.ranks.dp; ++rank) {
          module.ranks.server_of_rank.push_back(2 * rank / module.ranks.dp);
        }
      }
    }
    std::vector<uint32_t> samples(4 * kGroups);
    std::iota(samples.begin(), samples.end(), 0);
    std::shuffle(samples.begin(), samples.end(), random);
    Groups groups(kGroups);
    for (uint32_t i = 0; i < samples.size(); ++i) {
      groups[i % kGroups].push_back(samples[i]);
      for (ModuleShards& module : shards) {
        module.reader.push_back(random() % module.ranks.dp);
        module.bytes.push_back(random() % 100);
      }
    }
    const Groups placed = NumberGroups(groups, slots, shards);
    Groups numbered = placed;
    std::sort(numbered.begin(), numbered.end());
    std::sort(groups.begin(), groups.end());
    EXPECT_EQ(numbered, groups);
    const int64_t found = Moved(placed, slots, shards);
    int64_t best = found;
    do {
      best = std::min(best, Moved(numbered, slots, shards));
    } while (std::next_permutation(numbered.begin(), numbered.end()));
    EXPECT_EQ(found, best) << "round " << round;
  }
}

}  // namespace
}  // namespace ballast
