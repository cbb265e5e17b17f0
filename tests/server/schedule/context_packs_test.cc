#include "server/schedule/context_packs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> Squares(const std::vector<uint32_t>& lengths) {
  std::vector<double> costs;
  for (const double length : lengths) costs.push_back(length * length);
  return costs;
}

// Lengths with a long tail, of at most `most`.
std::vector<uint32_t> DrawLengths(uint32_t seed, size_t count, uint32_t most) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> draw(std::log(most / 40.0), 1.2);
  std::vector<uint32_t> lengths;
  while (lengths.size() < count) {
    lengths.push_back(
        1 + static_cast<uint32_t>(std::min<double>(draw(random), most - 1)));
  }
  return lengths;
}

void ExpectValid(const std::vector<uint32_t>& lengths,
                 const std::vector<ContextMicroBatch>& packs,
                 const ContextLimits& limits) {
  EXPECT_EQ(packs.size() % limits.multiple, 0u);
  std::vector<uint32_t> all;
  for (const ContextMicroBatch& micro_batch : packs) {
    uint32_t next = 0;
    for (const ContextPack& pack : micro_batch) {
      EXPECT_EQ(pack.first_rank, next);
      EXPECT_TRUE(std::has_single_bit(pack.ranks));
      EXPECT_LE(pack.ranks, limits.most_ranks);
      // A group that Megatron-Core makes begins at a multiple of its size.
      EXPECT_EQ(pack.first_rank % pack.ranks, 0u);
      next += pack.ranks;
      EXPECT_FALSE(pack.samples.empty());
      EXPECT_TRUE(std::is_sorted(pack.samples.begin(), pack.samples.end()));
      uint64_t tokens = 0;
      for (const uint32_t i : pack.samples) tokens += lengths[i];
      EXPECT_LE(tokens, pack.ranks * limits.tokens_a_rank);
      all.insert(all.end(), pack.samples.begin(), pack.samples.end());
    }
    EXPECT_EQ(next, limits.ranks);
  }
  std::sort(all.begin(), all.end());
  std::vector<uint32_t> expected(lengths.size());
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

TEST(PackByContextTest, SharesAPackAmongAsManyRanksAsItNeeds) {
  const std::vector<uint32_t> lengths = {1000, 4000, 1000, 1000, 1000};
  const ContextLimits limits = {4, 4, 1000, 1};
  const auto packs = PackByContext(lengths, Squares(lengths), limits);
  ASSERT_TRUE(packs.ok()) << packs.status();
  ExpectValid(lengths, *packs, limits);
  EXPECT_THAT(ListByRank(*packs, 4),
              ElementsAre(ElementsAre(ElementsAre(1), ElementsAre(1),
                                      ElementsAre(1), ElementsAre(1)),
                          ElementsAre(ElementsAre(0), ElementsAre(2),
                                      ElementsAre(3), ElementsAre(4))));
  const ContextFigures figures =
      GetContextFigures(lengths, ListByRank(*packs, 4));
  EXPECT_EQ(figures.busiest, 4000. * 4000 / 4 + 1000. * 1000);
  EXPECT_EQ(figures.mean, figures.busiest);
  EXPECT_EQ(figures.keys_moved, 3 * 4000u);
  EXPECT_EQ(figures.most_tokens, 1000);
  // Static: the keys of all 8000 tokens move to three ranks.
  const auto as_static = PackStatic(lengths, limits);
  ASSERT_TRUE(as_static.ok()) << as_static.status();
  ExpectValid(lengths, *as_static, limits);
  EXPECT_EQ(GetContextFigures(lengths, ListByRank(*as_static, 4)).keys_moved,
            3 * 8000u);
}

TEST(PackByContextTest, WeighsByCosts) {
  // Equal lengths, but one costs as much as the three others: it gets as many
  // ranks as they have together, though one would hold it.
  const std::vector<uint32_t> lengths = {100, 100, 100};
  const auto packs = PackByContext(lengths, {2, 1, 1}, {4, 4, 1000, 1});
  ASSERT_TRUE(packs.ok()) << packs.status();
  EXPECT_THAT(ListByRank(*packs, 4),
              ElementsAre(ElementsAre(ElementsAre(0), ElementsAre(0),
                                      ElementsAre(1), ElementsAre(2))));
}

TEST(PackByContextTest, KeepsTheLimitsAndIsAboutAsFastAsStatic) {
  uint64_t keys = 0, static_keys = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    ContextLimits limits;
    limits.most_ranks = 1u << (random() % 5);
    limits.ranks = limits.most_ranks * (1 + random() % 4);
    limits.tokens_a_rank = 2048;
    limits.multiple = 1 + random() % 2;
    const std::vector<uint32_t> lengths =
        DrawLengths(seed, limits.ranks * limits.multiple * (1 + random() % 12),
                    2048 * limits.most_ranks);
    const auto packs = PackByContext(lengths, Squares(lengths), limits);
    ASSERT_TRUE(packs.ok()) << packs.status() << " seed " << seed;
    ExpectValid(lengths, *packs, limits);
    const ContextFigures figures =
        GetContextFigures(lengths, ListByRank(*packs, limits.ranks));
    const auto as_static = PackStatic(lengths, limits);
    ASSERT_TRUE(as_static.ok()) << as_static.status();
    const ContextFigures theirs =
        GetContextFigures(lengths, ListByRank(*as_static, limits.ranks));
    EXPECT_LE(figures.busiest, theirs.busiest * 1.05 + 1) << seed;
    EXPECT_LE(figures.most_tokens, limits.tokens_a_rank);
    keys += figures.keys_moved;
    static_keys += theirs.keys_moved;
    EXPECT_EQ(ListByRank(*PackByContext(lengths, Squares(lengths), limits),
                         limits.ranks),
              ListByRank(*packs, limits.ranks));
  }
  EXPECT_LT(keys, static_keys / 2);
}

// A step has the same packs in every version: servers of two versions run
// beside each other.
TEST(PackByContextTest, MakesThePacksOfTheFirstVersion) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  const auto add = [&hash](uint64_t number) {
    hash = (hash ^ number) * 1099511628211u;
  };
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    ContextLimits limits;
    limits.most_ranks = 1u << (random() % 5);
    limits.ranks = limits.most_ranks * (1 + random() % 6);
    limits.tokens_a_rank = 2048;
    limits.multiple = 1 + random() % 3;
    std::vector<uint32_t> lengths(limits.ranks * limits.multiple *
                                  (1 + random() % 16));
    for (uint32_t& length : lengths) {
      const uint32_t most = 2048 * limits.most_ranks;
      length = 1 + random() % (most >> (random() % 8));
    }
    std::vector<double> costs = Squares(lengths);
    if (seed % 4 == 0) {  // many equal ones
      for (double& cost : costs) cost = random() % 4;
    }
    const auto packs = PackByContext(lengths, costs, limits);
    ASSERT_TRUE(packs.ok()) << packs.status();
    for (const ContextMicroBatch& micro_batch : *packs) {
      for (const ContextPack& pack : micro_batch) {
        add(pack.first_rank);
        add(pack.ranks);
        for (const uint32_t i : pack.samples) add(i);
      }
    }
  }
  EXPECT_EQ(hash, 17885506898252212448u);
}

TEST(PackByContextTest, NamesWhatItCannotPack) {
  const ContextLimits limits = {4, 2, 1000, 1};
  const auto longer = PackByContext({5, 2001}, {1, 1}, limits);
  EXPECT_EQ(longer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(longer.status().message(),
              HasSubstr("sample 1 has 2001 tokens with padding; a pack of 2 "
                        "ranks holds 2000"));
  // Two packs at least, for four ranks of which two share one.
  EXPECT_EQ(PackByContext({5}, {1}, limits).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(PackByContext({5, 5}, {1, 1}, limits).ok());
  EXPECT_FALSE(PackByContext({}, {}, limits).ok());
  EXPECT_FALSE(PackByContext({5}, {1, 2}, limits).ok());
  EXPECT_FALSE(PackByContext({5}, {-1}, {1, 1, 9, 1}).ok());
  for (const ContextLimits& wrong :
       {ContextLimits{4, 3, 9, 1}, ContextLimits{3, 2, 9, 1},
        ContextLimits{0, 1, 9, 1}, ContextLimits{1, 1, 0, 1},
        ContextLimits{1, 1, 9, 0}}) {
    EXPECT_FALSE(PackByContext({5, 5, 5, 5}, {1, 1, 1, 1}, wrong).ok());
    EXPECT_FALSE(PackStatic({5, 5, 5, 5}, wrong).ok());
  }
}

}  // namespace
}  // namespace ballast
