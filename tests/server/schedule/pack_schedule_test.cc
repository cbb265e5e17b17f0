#include "server/schedule/pack_schedule.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Worked examples from the reference.
TEST(PackInOrderTest, AgreesWithTheReferencesExamples) {
  EXPECT_THAT(*PackInOrder({5, 4, 3, 6, 2, 2, 7}, {10, 2}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3),
                          ElementsAre(4, 5), ElementsAre(6)));
  EXPECT_THAT(*PackInOrder({2, 2, 2}, {10, 2}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_THAT(*PackInOrder({6, 5, 4, 3, 2, 1}, {8, 4}),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2, 3),
                          ElementsAre(4, 5)));
}

TEST(PackInOrderTest, RefusesSamplesThatCannotBePacked) {
  const auto nine = PackInOrder({9, 9, 9}, {10, 2});
  EXPECT_EQ(nine.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(nine.status().message(), HasSubstr("3 samples cannot fill 4"));
  // The reference would make an empty first pack.
  const auto longer = PackInOrder({12, 3}, {10, 1});
  EXPECT_EQ(longer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(longer.status().message(), HasSubstr("sample 0 has 12 tokens"));
  EXPECT_FALSE(PackInOrder({}, {10, 1}).ok());
  EXPECT_FALSE(PackInOrder({1}, {0, 1}).ok());
  EXPECT_FALSE(PackInOrder({1}, {10, 0}).ok());
}

void ExpectValid(const std::vector<uint32_t>& lengths, const Groups& packs,
                 const PackLimits& limits) {
  EXPECT_EQ(packs.size() % limits.multiple, 0u);
  std::vector<uint32_t> all;
  for (const auto& pack : packs) {
    EXPECT_FALSE(pack.empty());
    EXPECT_TRUE(std::is_sorted(pack.begin(), pack.end()));
    uint64_t tokens = 0;
    for (const uint32_t i : pack) tokens += lengths[i];
    EXPECT_LE(tokens, limits.capacity);
    all.insert(all.end(), pack.begin(), pack.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<uint32_t> expected(lengths.size());
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

std::vector<uint64_t> Squares(const std::vector<uint32_t>& lengths) {
  std::vector<uint64_t> squares;
  for (const uint64_t length : lengths) squares.push_back(length * length);
  return squares;
}

// Difference between the costliest and the cheapest pack that run together,
// summed over the micro-batches.
uint64_t Spread(const std::vector<uint32_t>& lengths, const Groups& packs,
                uint32_t together) {
  uint64_t spread = 0;
  for (size_t first = 0; first < packs.size(); first += together) {
    uint64_t least = ~uint64_t{0}, most = 0;
    for (size_t p = first; p < first + together; ++p) {
      uint64_t cost = 0;
      for (const uint32_t i : packs[p]) {
        cost += uint64_t{lengths[i]} * lengths[i];
      }
      least = std::min(least, cost);
      most = std::max(most, cost);
    }
    spread += most - least;
  }
  return spread;
}

TEST(PackBalancedTest, KeepsTheLimitsAndIsNeverSlower) {
  uint64_t reference_spread = 0, spread = 0, reference_time = 0, time = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const PackLimits limits = {4096, 1u + static_cast<uint32_t>(random() % 8)};
    std::vector<uint32_t> lengths(limits.multiple * (1 + random() % 20));
    for (uint32_t& length : lengths) {
      length = 1 + random() % (seed % 3 == 0 ? 4096 : 1500);
    }
    const auto in_order = PackInOrder(lengths, limits);
    const std::vector<uint64_t> squares = Squares(lengths);
    const auto balanced = PackBalanced(lengths, squares, limits);
    ASSERT_TRUE(in_order.ok()) << in_order.status();
    ASSERT_TRUE(balanced.ok()) << balanced.status();
    ExpectValid(lengths, *in_order, limits);
    ExpectValid(lengths, *balanced, limits);
    EXPECT_EQ(balanced->size(), in_order->size());
    EXPECT_LE(PackedTime(squares, *balanced, limits.multiple),
              PackedTime(squares, *in_order, limits.multiple))
        << "seed " << seed;
    reference_spread += Spread(lengths, *in_order, limits.multiple);
    spread += Spread(lengths, *balanced, limits.multiple);
    reference_time += PackedTime(squares, *in_order, limits.multiple);
    time += PackedTime(squares, *balanced, limits.multiple);
  }
  EXPECT_LT(spread, reference_spread / 3);
  EXPECT_LT(time, reference_time * 3 / 4);
}

uint64_t CostOf(const std::vector<uint64_t>& squares,
                const std::vector<uint32_t>& pack) {
  uint64_t cost = 0;
  for (const uint32_t i : pack) cost += squares[i];
  return cost;
}

// The costliest first.
Groups SortPlainly(const std::vector<uint64_t>& squares, Groups packs) {
  for (auto& pack : packs) std::sort(pack.begin(), pack.end());
  std::stable_sort(packs.begin(), packs.end(),
                   [&](const auto& a, const auto& b) {
                     return CostOf(squares, a) > CostOf(squares, b);
                   });
  return packs;
}

// The rule as it is written: longest first, into the cheapest pack that has
// room. No packs if a sample fits nowhere.
Groups FillPlainly(const std::vector<uint32_t>& lengths,
                   const std::vector<uint64_t>& squares, size_t count,
                   uint64_t capacity) {
  std::vector<uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::make_pair(lengths[a], squares[a]) >
           std::make_pair(lengths[b], squares[b]);
  });
  Groups packs(count);
  for (const uint32_t i : order) {
    std::vector<uint32_t>* cheapest = nullptr;
    for (auto& pack : packs) {
      uint64_t tokens = lengths[i];
      for (const uint32_t k : pack) tokens += lengths[k];
      if (tokens > capacity) continue;
      if (cheapest == nullptr ||
          std::make_pair(CostOf(squares, pack), pack.size()) <
              std::make_pair(CostOf(squares, *cheapest), cheapest->size())) {
        cheapest = &pack;
      }
    }
    if (cheapest == nullptr) return {};
    cheapest->push_back(i);
  }
  return SortPlainly(squares, std::move(packs));
}

TEST(PackBalancedTest, PutsTheLongestIntoTheCheapestPackThatHasRoom) {
  int filled = 0, in_order = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const PackLimits limits = {1024, 1u + static_cast<uint32_t>(random() % 8)};
    std::vector<uint32_t> lengths(limits.multiple * (1 + random() % 20));
    std::vector<uint64_t> squares;
    for (uint32_t& length : lengths) {
      // Few values, so that packs cost the same; some samples without tokens.
      length = seed % 2 == 0 ? random() % 5 * 64 : random() % 1024;
      // Some are pairs of sequences.
      squares.push_back(uint64_t{length} * length / (1 + random() % 2));
    }
    const auto time = [&](const Groups& packs) {
      return PackedTime(squares, packs, limits.multiple);
    };
    const Groups reference =
        SortPlainly(squares, *PackInOrder(lengths, limits));
    const Groups plain =
        FillPlainly(lengths, squares, reference.size(), limits.capacity);
    const bool better = !plain.empty() && time(plain) < time(reference);
    EXPECT_EQ(*PackBalanced(lengths, squares, limits),
              better ? plain : reference)
        << "seed " << seed;
    ++(better ? filled : in_order);
  }
  EXPECT_GT(filled, 200);
  EXPECT_GT(in_order, 10);
}

// Two sequences of 4 cost half of one of 8 tokens, and take the same room: each
// pack gets one of either. By lengths alone all packs of two would be equal.
TEST(PackBalancedTest, APairCostsItsTwoSequences) {
  const std::vector<uint32_t> lengths = {8, 8, 8, 8};
  const std::vector<uint64_t> squares = {64, 64, 32, 32};
  const auto packs = PackBalanced(lengths, squares, {16, 2});
  ASSERT_TRUE(packs.ok()) << packs.status();
  EXPECT_EQ(PackedTime(squares, *packs, 2), 64u + 32u);
  // A swap of 0 and 2 would even the encoders, and one pack would cost 128.
  Groups evened = {{0, 3}, {1, 2}};
  EvenEncoders(lengths, squares, {9, 0, 0, 9}, {16, 2}, 0, &evened);
  EXPECT_THAT(evened, ElementsAre(ElementsAre(1, 3), ElementsAre(0, 2)));
}

int64_t Load(const std::vector<int64_t>& loads,
             const std::vector<uint32_t>& pack) {
  int64_t load = 0;
  for (const uint32_t i : pack) load += loads[i];
  return load;
}

// The sum over each `together` packs of the largest load.
int64_t EncoderTime(const std::vector<int64_t>& loads, const Groups& packs,
                    uint32_t together) {
  int64_t time = 0;
  for (size_t first = 0; first < packs.size(); first += together) {
    int64_t largest = 0;
    for (size_t p = first; p < first + together; ++p) {
      largest = std::max(largest, Load(loads, packs[p]));
    }
    time += largest;
  }
  return time;
}

TEST(EvenEncodersTest, SwapsSamplesOfOneLength) {
  // Two sets of two packs; each has one sample with images a pack afterwards.
  Groups packs = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  EvenEncoders(std::vector<uint32_t>(8, 10), std::vector<uint64_t>(8, 100),
               {9, 9, 0, 0, 0, 4, 0, 0}, {20, 2}, 0, &packs);
  EXPECT_EQ(Load({9, 9, 0, 0, 0, 4, 0, 0}, packs[0]), 9);
  EXPECT_EQ(Load({9, 9, 0, 0, 0, 4, 0, 0}, packs[1]), 9);
  // Nothing can be better than 4 and 0.
  EXPECT_THAT(packs[2], ElementsAre(4, 5));
  EXPECT_THAT(packs[3], ElementsAre(6, 7));
}

TEST(EvenEncodersTest, LanguageGrowsByTheSlackAtMost) {
  // Squares 5*5 + 5*5 = 50 and 6*6 = 36. A swap of 0 and 2 makes 36 + 25 = 61,
  // which is 22 % more than 50.
  const std::vector<uint32_t> lengths = {5, 5, 6};
  const std::vector<uint64_t> squares = Squares(lengths);
  const std::vector<int64_t> loads = {8, 8, 2};
  Groups packs = {{0, 1}, {2}};
  EvenEncoders(lengths, squares, loads, {100, 2}, 0.21, &packs);
  EXPECT_THAT(packs, ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  EvenEncoders(lengths, squares, loads, {100, 2}, 0.22, &packs);
  EXPECT_EQ(EncoderTime(loads, packs, 2), 10);
  // A pack of 10 tokens has no room for 6 and 5.
  packs = {{0, 1}, {2}};
  EvenEncoders(lengths, squares, loads, {10, 2}, 1, &packs);
  EXPECT_THAT(packs, ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
}

TEST(EvenEncodersTest, KeepsLimitsAndIsNeverWorse) {
  constexpr double kSlack = 0.02;
  int64_t before = 0, after = 0;
  double mean = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const PackLimits limits = {8192, 1u + static_cast<uint32_t>(random() % 8)};
    std::vector<uint32_t> lengths(limits.multiple * (8 + random() % 40));
    std::vector<int64_t> loads(lengths.size());
    for (size_t i = 0; i < lengths.size(); ++i) {
      // Text, or an image of four patches a token and a text.
      const uint32_t image = random() % 3 == 0 ? 0 : 1 + random() % 1500;
      lengths[i] = image + 1 + random() % 800;
      loads[i] = int64_t{4} * image;
    }
    const std::vector<uint64_t> squares = Squares(lengths);
    const auto packs = PackBalanced(lengths, squares, limits);
    ASSERT_TRUE(packs.ok()) << packs.status();
    Groups evened = *packs;
    EvenEncoders(lengths, squares, loads, limits, kSlack, &evened);
    ExpectValid(lengths, evened, limits);
    ASSERT_EQ(evened.size(), packs->size());
    EXPECT_LE(PackedTime(squares, evened, limits.multiple),
              PackedTime(squares, *packs, limits.multiple) * (1 + kSlack));
    const int64_t was = EncoderTime(loads, *packs, limits.multiple);
    const int64_t is = EncoderTime(loads, evened, limits.multiple);
    EXPECT_LE(is, was) << "seed " << seed;
    before += was;
    after += is;
    mean += std::accumulate(loads.begin(), loads.end(), 0.0) / limits.multiple;
    // The same packs whatever ran before.
    Groups again = *packs;
    EvenEncoders(lengths, squares, loads, limits, kSlack, &again);
    EXPECT_EQ(again, evened);
  }
  RecordProperty("before", absl::StrCat(before / mean));
  RecordProperty("after", absl::StrCat(after / mean));
  EXPECT_LT(after / mean - 1, (before / mean - 1) / 3);
}

TEST(PackedTimeTest, SumsTheLargestOfEachSet) {
  EXPECT_EQ(PackedTime(Squares({1, 2, 3, 4}), {{0, 1}, {2}, {3}, {}}, 2),
            9 + 16);
}

}  // namespace
}  // namespace ballast
