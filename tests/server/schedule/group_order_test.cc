#include "server/schedule/group_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/schedule/sample_order.h"

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

struct EpochGroups {
  std::vector<uint64_t> starts;
  uint64_t size = 0;

  explicit EpochGroups(const std::vector<uint64_t>& sizes) {
    for (const uint64_t one : sizes) {
      starts.push_back(size);
      size += one;
    }
  }
  uint64_t GroupOf(uint64_t ordinal) const {
    return std::upper_bound(starts.begin(), starts.end(), ordinal) -
           starts.begin() - 1;
  }
};

// Checks one epoch: each sample once, and each group in one window of at most
// `open` groups, whose samples come without those of another between them.
void CheckEpoch(const EpochGroups& groups, uint32_t open, uint64_t key) {
  const GroupEpoch epoch(groups.starts, groups.size, open, key);
  std::vector<bool> seen(groups.size);
  std::set<uint64_t> done;  // groups of the windows before
  std::vector<uint64_t> left(groups.starts.size());
  for (uint64_t ordinal = 0; ordinal < groups.size; ++ordinal) {
    ++left[groups.GroupOf(ordinal)];
  }
  std::set<uint64_t> window;
  uint64_t left_in_window = 0;  // samples of groups seen in this window
  for (uint64_t position = 0; position < groups.size; ++position) {
    const uint64_t ordinal = epoch.At(position);
    ASSERT_LT(ordinal, groups.size);
    ASSERT_FALSE(seen[ordinal]) << "position " << position;
    seen[ordinal] = true;
    const uint64_t group = groups.GroupOf(ordinal);
    ASSERT_EQ(done.count(group), 0u) << "a group of an earlier window";
    if (window.insert(group).second) left_in_window += left[group];
    ASSERT_LE(window.size(), open);
    --left_in_window;
    // All groups of a full window are read to their ends: the next one begins.
    if (left_in_window == 0 &&
        (window.size() == open ||
         done.size() + window.size() == groups.starts.size())) {
      done.insert(window.begin(), window.end());
      window.clear();
    }
  }
  EXPECT_EQ(done.size(), groups.starts.size());
}

TEST(GroupOrderTest, AllSmallCasesGiveEverySampleOnce) {
  // All lists of up to five groups of 1 to 3 samples, read 1 to 6 at a time.
  std::vector<std::vector<uint64_t>> lists = {{}};
  for (size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].size() == 5) continue;
    for (uint64_t size = 1; size <= 3; ++size) {
      std::vector<uint64_t> longer = lists[i];
      longer.push_back(size);
      lists.push_back(longer);
    }
  }
  ASSERT_EQ(lists.size(), 1u + 3 + 9 + 27 + 81 + 243);
  for (const auto& sizes : lists) {
    for (uint32_t open = 1; open <= 6; ++open) {
      for (uint64_t key = 0; key < 4; ++key) {
        CheckEpoch(EpochGroups(sizes), open, key);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(GroupOrderTest, LargeCasesGiveEverySampleOnce) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 30; ++round) {
    std::vector<uint64_t> sizes(1 + random() % 300);
    for (uint64_t& size : sizes) {
      // Mostly equal, as writers make them; some large, some of one sample.
      const uint64_t kind = random() % 10;
      size = kind < 7   ? 100
             : kind < 9 ? 1 + random() % 100
                        : 1 + random() % 999;
    }
    CheckEpoch(EpochGroups(sizes), 1 + random() % 64, random());
    if (HasFatalFailure()) return;
  }
}

TEST(GroupOrderTest, IsAFunctionOfItsArguments) {
  const EpochGroups groups({3, 1, 4, 1, 5, 9, 2, 6});
  const GroupOrder order(groups.starts, groups.size, 3, 7);
  const GroupOrder same(groups.starts, groups.size, 3, 7);
  // In another order of epochs, so that tables are dropped and built again.
  for (const uint64_t epoch : {5, 1, 2, 5, 1, 0, 5, 2}) {
    for (uint64_t p = groups.size; p-- > 0;) {
      ASSERT_EQ(same.At(epoch, p), order.At(epoch, p));
    }
  }
}

// Threads keep tables of few orders; more orders, their epochs and those that
// took the place of others must not be mixed up.
TEST(GroupOrderTest, OrdersAndThreadsDoNotMixTables) {
  const EpochGroups groups({3, 1, 4, 1, 5, 9, 2, 6});
  const auto check = [&](uint64_t seed) {
    for (uint64_t round = 0; round < 3; ++round) {
      std::vector<std::unique_ptr<GroupOrder>> orders;
      for (uint64_t key = 0; key < 20; ++key) {
        orders.push_back(std::make_unique<GroupOrder>(
            groups.starts, groups.size, 3, seed + key));
      }
      std::mt19937_64 random(seed + round);
      for (int i = 0; i < 2000; ++i) {
        const GroupOrder& order = *orders[random() % orders.size()];
        const uint64_t epoch = random() % 3;
        const uint64_t position = random() % groups.size;
        ASSERT_EQ(order.At(epoch, position), order.Epoch(epoch)->At(position));
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) threads.emplace_back(check, 100 * t);
  for (std::thread& thread : threads) thread.join();
}

TEST(GroupOrderTest, EpochsAndKeysDiffer) {
  const EpochGroups groups(std::vector<uint64_t>(40, 10));
  const GroupOrder order(groups.starts, groups.size, 4, 7);
  const GroupOrder other(groups.starts, groups.size, 4, 8);
  uint64_t same_epoch = 0;
  uint64_t same_key = 0;
  for (uint64_t p = 0; p < groups.size; ++p) {
    same_epoch += order.At(0, p) == order.At(1, p);
    same_key += order.At(0, p) == other.At(0, p);
  }
  // One of 400 by chance.
  EXPECT_LT(same_epoch, 10u);
  EXPECT_LT(same_key, 10u);
}

TEST(GroupOrderTest, SpreadsSamplesOverThePlacesOfTheEpoch) {
  // Over many epochs, each sample is found in each tenth of the epoch alike:
  // exactly so where groups are equal.
  const EpochGroups groups(std::vector<uint64_t>(20, 5));
  constexpr uint64_t kEpochs = 2000;
  std::vector<std::vector<uint64_t>> found(groups.size,
                                           std::vector<uint64_t>(10));
  const GroupOrder order(groups.starts, groups.size, 3, 11);
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto at = order.Epoch(epoch);
    for (uint64_t p = 0; p < groups.size; ++p) {
      ++found[at->At(p)][p * 10 / groups.size];
    }
  }
  for (const auto& tenths : found) {
    for (const uint64_t count : tenths) {
      // 200 expected, deviation about 13; 1000 counts are looked at.
      EXPECT_GT(count, 120u);
      EXPECT_LT(count, 280u);
    }
  }
}

TEST(GroupOrderTest, RulesTheSourcesOfASampleOrderThatHaveGroups) {
  const EpochGroups groups(std::vector<uint64_t>(30, 4));
  SampleOrder::Source tars = {"tars", 60, 1};
  SampleOrder::Source rows = {"rows", groups.size, 2, groups.starts, 5};
  const SampleOrder order({tars, rows}, 1, true);
  // Two epochs of both, in which a window of five groups has 20 samples.
  std::vector<std::vector<uint64_t>> seen(2);
  std::set<uint64_t> window;
  for (uint64_t position = 0; position < 2 * 180; ++position) {
    const SampleOrder::Sample sample = order.At(position);
    std::vector<uint64_t>& of_source = seen[sample.source];
    of_source.push_back(sample.ordinal);
    if (sample.source == 0) continue;
    EXPECT_EQ(sample.epoch, (of_source.size() - 1) / groups.size);
    window.insert(groups.GroupOf(sample.ordinal));
    if (of_source.size() % 20 != 0) continue;
    EXPECT_EQ(window.size(), 5u);
    window.clear();
  }
  ASSERT_EQ(seen[0].size(), 120u);
  ASSERT_EQ(seen[1].size(), 240u);
  for (const auto& of_source : seen) {
    const auto middle = of_source.begin() + of_source.size() / 2;
    EXPECT_EQ(std::set<uint64_t>(of_source.begin(), middle).size(),
              of_source.size() / 2);
    EXPECT_EQ(std::set<uint64_t>(middle, of_source.end()).size(),
              of_source.size() / 2);
  }
  // Without shuffling, the order is the index's.
  const SampleOrder plain({rows}, 1, false);
  for (uint64_t p = 0; p < groups.size; ++p) EXPECT_EQ(plain.At(p).ordinal, p);
}

TEST(GroupOrderTest, OneWindowIsAFullShuffle) {
  // Neighbours of the index are apart: their mean distance is a third of all.
  const EpochGroups groups(std::vector<uint64_t>(10, 100));
  const GroupEpoch epoch(groups.starts, groups.size, 10, 3);
  std::vector<double> place(groups.size);
  for (uint64_t p = 0; p < groups.size; ++p) place[epoch.At(p)] = p;
  double sum = 0;
  for (uint64_t i = 1; i < groups.size; ++i) {
    sum += std::abs(place[i] - place[i - 1]);
  }
  EXPECT_NEAR(sum / (groups.size - 1), groups.size / 3.0, groups.size * 0.04);
}

}  // namespace

}  // namespace ballast
