#include "server/serve/monitor/wanted_workers.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(WantedWorkersTest, FollowsBusyWorkersWithATenthMore) {
  EXPECT_EQ(WantedWorkers({.busy = 0}), 1u);
  EXPECT_EQ(WantedWorkers({.busy = 1}), 2u);
  EXPECT_EQ(WantedWorkers({.busy = 20, .streams = 8}), 22u);
}

TEST(WantedWorkersTest, GrowsByThePartOfRanksThatWait) {
  for (uint64_t waiting = 1; waiting <= 8; ++waiting) {
    EXPECT_EQ(WantedWorkers({.busy = 16,
                             .samples_waiting = 3,
                             .streams = 8,
                             .streams_waiting = waiting}),
              16 + 2 * waiting);
  }
}

TEST(WantedWorkersTest, WaitsForOtherThingsDoNotGrowTheTier) {
  EXPECT_EQ(WantedWorkers({.busy = 2, .streams = 8, .streams_waiting = 8}), 3u);
}

// A tier in which one server decides for itself finds its size: with demand for
// `need` workers, the busy ones follow and the sum settles within a fifth.
TEST(WantedWorkersTest, ATierSettles) {
  constexpr uint32_t kWorkers = 16;
  for (const uint32_t need : {10u, 70u, 300u}) {
    uint32_t servers = 1;
    for (int round = 0; round < 40; ++round) {
      const bool short_of = need > servers * kWorkers;
      const uint32_t busy = std::min(need / servers, kWorkers);
      uint32_t sum = 0;
      for (uint32_t i = 0; i < servers; ++i) {
        sum += WantedWorkers({.busy = busy,
                              .samples_waiting = short_of,
                              .streams = 8,
                              .streams_waiting = short_of ? 8u : 0u});
      }
      servers = (sum + kWorkers - 1) / kWorkers;
    }
    EXPECT_GE(servers * kWorkers, need);
    EXPECT_LE(servers, need * 1.2 / kWorkers + 2);
  }
}

}  // namespace
}  // namespace ballast
