#include "proto/schedule/spread.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

v1::Role RoleOf(uint32_t rank) {
  v1::Role role;
  role.set_split(v1::SPLIT_TRAIN);
  role.set_module(v1::MODULE_VISION);
  role.set_dp_rank(rank);
  return role;
}

size_t OwnerOf(const std::vector<CircleRange>& ranges, uint64_t place) {
  size_t owners = 0;
  size_t owner = 0;
  for (const CircleRange& range : ranges) {
    if (range.first <= place && place <= range.last) {
      ++owners;
      owner = range.server;
    }
  }
  EXPECT_EQ(owners, 1u) << place;
  return owner;
}

// The servers of the blocks 0, 1, ... of a stream.
std::vector<size_t> Owners(const std::vector<SpreadServer>& servers,
                           size_t blocks) {
  const std::vector<CircleRange> ranges = DivideCircle(servers);
  BlockShare share;
  share.offset = CircleOffset(RoleOf(3));
  std::vector<size_t> owners;
  for (size_t i = 0; i < blocks; ++i) {
    owners.push_back(OwnerOf(ranges, share.PlaceOf(i, 0)));
  }
  return owners;
}

std::vector<size_t> Counts(const std::vector<size_t>& owners, size_t first,
                           size_t count, size_t servers) {
  std::vector<size_t> counts(servers);
  for (size_t i = first; i < first + count; ++i) ++counts[owners[i]];
  return counts;
}

TEST(DivideCircleTest, RangesCoverTheCircleOnce) {
  for (size_t servers = 1; servers <= 9; ++servers) {
    std::vector<SpreadServer> all(servers);
    for (size_t i = 0; i < servers; ++i) all[i].weight = 1 + i * i;
    for (size_t absent = 0; absent <= servers; ++absent) {
      for (size_t i = 0; i < servers; ++i) all[i].present = i != absent;
      const std::vector<CircleRange> ranges = DivideCircle(all);
      if (servers == 1 && absent == 0) {
        EXPECT_TRUE(ranges.empty());
        continue;
      }
      uint64_t next = 0;
      for (const CircleRange& range : ranges) {
        EXPECT_EQ(range.first, next);
        EXPECT_LE(range.first, range.last);
        EXPECT_NE(range.server, absent);
        next = range.last + 1;
      }
      EXPECT_EQ(next, 0u);  // around the circle
    }
  }
}

// In every window of blocks each server has its part, give or take a few.
TEST(DivideCircleTest, EveryWindowIsEven) {
  for (size_t servers = 2; servers <= 8; ++servers) {
    const std::vector<size_t> owners =
        Owners(std::vector<SpreadServer>(servers), 4000);
    for (size_t first = 0; first + 32 * servers <= owners.size(); ++first) {
      for (size_t count : Counts(owners, first, 32 * servers, servers)) {
        EXPECT_NEAR(count, 32, 1.0 + servers) << servers << " " << first;
      }
    }
  }
}

TEST(DivideCircleTest, PartsFollowWeights) {
  const std::vector<size_t> counts =
      Counts(Owners({{1}, {4}, {3}}, 8000), 0, 8000, 3);
  EXPECT_NEAR(counts[0], 1000, 10);
  EXPECT_NEAR(counts[1], 4000, 10);
  EXPECT_NEAR(counts[2], 3000, 10);
}

TEST(DivideCircleTest, OneThatLeavesMovesItsPartAlone) {
  for (size_t servers = 2; servers <= 6; ++servers) {
    std::vector<SpreadServer> all(servers);
    const std::vector<size_t> before = Owners(all, 3000);
    for (size_t absent = 0; absent < servers; ++absent) {
      all[absent].present = false;
      const std::vector<size_t> after = Owners(all, 3000);
      all[absent].present = true;
      std::vector<size_t> gets(servers);
      for (size_t i = 0; i < before.size(); ++i) {
        if (before[i] == absent) {
          ++gets[after[i]];
        } else {
          EXPECT_EQ(after[i], before[i]);
        }
      }
      EXPECT_EQ(gets[absent], 0u);
      for (size_t i = 0; i < servers; ++i) {
        if (i == absent) continue;
        EXPECT_NEAR(gets[i], 3000.0 / servers / (servers - 1), 20);
      }
    }
  }
}

TEST(DivideCircleTest, OneThatJoinsTakesFromAllAlike) {
  for (size_t servers = 1; servers <= 6; ++servers) {
    const std::vector<size_t> before =
        Owners(std::vector<SpreadServer>(servers), 4200);
    const std::vector<size_t> after =
        Owners(std::vector<SpreadServer>(servers + 1), 4200);
    std::vector<size_t> gives(servers);
    for (size_t i = 0; i < before.size(); ++i) {
      if (after[i] == servers) {
        ++gives[before[i]];
      } else {
        EXPECT_EQ(after[i], before[i]);
      }
    }
    for (size_t given : gives) {
      EXPECT_NEAR(given, 4200.0 / servers / (servers + 1), 12);
    }
  }
}

TEST(BlockShareTest, EveryBlockHasOneOwner) {
  const std::vector<CircleRange> ranges =
      DivideCircle(std::vector<SpreadServer>(3));
  std::vector<BlockShare> shares(3);
  for (BlockShare& share : shares) {
    share.stride = 4;
    share.offset = CircleOffset(RoleOf(1));
  }
  for (const CircleRange& range : ranges) {
    shares[range.server].parts.push_back({range.first, range.last, 0, 0});
  }
  for (uint64_t step = 0; step < 100; ++step) {
    for (uint32_t m = 0; m < 6; ++m) {  // a step may be longer than usual
      int owners = 0;
      for (const BlockShare& share : shares) owners += share.Owns(step, m);
      EXPECT_EQ(owners, 1);
    }
  }
}

TEST(BlockShareTest, APartBeginsAtItsBlock) {
  BlockShare share;
  share.parts = {{0, UINT64_MAX, 5, 2}};
  EXPECT_FALSE(share.Owns(4, 9));
  EXPECT_FALSE(share.Owns(5, 1));
  EXPECT_TRUE(share.Owns(5, 2));
  EXPECT_TRUE(share.Owns(6, 0));
}

TEST(PreferServersTest, RanksAreEvenOverServersAndKeepTheirChoice) {
  constexpr size_t kServers = 64;
  constexpr size_t kMost = 4;
  constexpr uint32_t kRanks = 4096;
  std::vector<std::string> names;
  for (size_t i = 0; i < kServers; ++i) names.push_back(absl::StrCat("s", i));
  std::map<size_t, int> ranks_of;
  int lost = 0;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const auto first = [&](size_t servers) {
      auto order =
          PreferServers(RoleOf(rank), absl::MakeSpan(names).first(servers));
      EXPECT_EQ(order.size(), servers);
      order.resize(kMost);
      return order;
    };
    const auto all = first(kServers);
    for (size_t server : all) ++ranks_of[server];
    // Without the last server.
    const auto less = first(kServers - 1);
    std::set<size_t> changed(all.begin(), all.end());
    for (size_t server : less) changed.erase(server);
    EXPECT_LE(changed.size(), 1u);
    if (!changed.empty()) EXPECT_EQ(*changed.begin(), kServers - 1);
    lost += changed.size();
  }
  // Binomial: five standard deviations.
  const double mean = 1.0 * kRanks * kMost / kServers;
  for (const auto& [server, ranks] : ranks_of) {
    EXPECT_NEAR(ranks, mean, 5 * std::sqrt(mean));
  }
  EXPECT_EQ(lost, ranks_of[kServers - 1]);
}

}  // namespace
}  // namespace ballast
