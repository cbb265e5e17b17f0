#include "server/plan/pack_plan.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/schedule/permutation.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;

TEST(FirstFitDecreasingTest, PacksByHand) {
  const std::vector<uint32_t> lengths = {4, 8, 1, 4, 2, 1};
  EXPECT_THAT(FirstFitDecreasing(lengths, 10),
              ElementsAre(ElementsAre(0, 2, 3, 5), ElementsAre(1, 4)));
  EXPECT_TRUE(FirstFitDecreasing({}, 10).empty());
}

// Against the rule written down: the first pack with room, longest first.
TEST(FirstFitDecreasingTest, IsFirstFitDecreasing) {
  constexpr uint64_t kCapacity = 1000;
  std::vector<uint32_t> lengths;
  for (uint64_t i = 0; i < 3000; ++i) {
    lengths.push_back(1 + Mix64(i) % (i % 7 == 0 ? 1000 : 300));
  }
  std::vector<uint32_t> order(lengths.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return lengths[a] > lengths[b];
  });
  std::vector<std::vector<uint32_t>> wanted;
  std::vector<uint64_t> used;
  for (const uint32_t i : order) {
    size_t p = 0;
    while (p < used.size() && used[p] + lengths[i] > kCapacity) ++p;
    if (p == used.size()) {
      used.push_back(0);
      wanted.emplace_back();
    }
    used[p] += lengths[i];
    wanted[p].push_back(i);
  }
  for (auto& pack : wanted) std::sort(pack.begin(), pack.end());
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(FirstFitDecreasing(lengths, kCapacity), wanted);
}

}  // namespace
}  // namespace ballast
