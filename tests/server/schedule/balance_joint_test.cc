#include "server/schedule/balance_joint.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

// The smallest objective over all assignments of a small case.
double BestJointLoad(const std::vector<std::vector<double>>& costs,
                     uint32_t groups) {
  Groups assigned(groups);
  double best = std::numeric_limits<double>::infinity();
  std::function<void(uint32_t)> place = [&](uint32_t i) {
    if (i == costs[0].size()) {
      best = std::min(best, JointLoad(costs, assigned));
      return;
    }
    for (auto& group : assigned) {
      group.push_back(i);
      place(i + 1);
      group.pop_back();
    }
  };
  place(0);
  return best;
}

TEST(BalanceJointTest, NearTheOptimumOfSmallCases) {
  for (uint32_t seed = 0; seed < 25; ++seed) {
    std::mt19937 random(seed);
    // Of one to three modules.
    std::vector<std::vector<double>> costs(1 + seed % 3,
                                           std::vector<double>(8));
    for (std::vector<double>& of_module : costs) {
      for (double& cost : of_module) cost = random() % 1000;
    }
    const auto groups = BalanceJoint(costs, 3, false);
    ASSERT_TRUE(groups.ok());
    const double best = BestJointLoad(costs, 3);
    EXPECT_GE(JointLoad(costs, *groups), best);
    EXPECT_LE(JointLoad(costs, *groups), 1.15 * best) << "seed " << seed;
  }
}

TEST(BalanceJointTest, NeverWorseThanBalancingTheSum) {
  double joint = 0, summed = 0, bound = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const uint32_t groups = 2 + random() % 10;
    std::vector<double> vision(8 * groups), language(8 * groups), sums;
    for (size_t i = 0; i < vision.size(); ++i) {
      // Some samples are only images, some only text.
      vision[i] = random() % 3 == 0 ? 0 : random() % 2000;
      language[i] = 50 + random() % 2000;
      sums.push_back(vision[i] + language[i]);
    }
    for (const bool equal_count : {false, true}) {
      const auto balanced =
          BalanceJoint({vision, language}, groups, equal_count);
      const auto refined = BalanceRefined(sums, groups, equal_count);
      ASSERT_TRUE(balanced.ok() && refined.ok());
      std::vector<bool> seen(vision.size(), false);
      for (const auto& group : *balanced) {
        EXPECT_FALSE(group.empty());
        EXPECT_TRUE(!equal_count || group.size() == 8u);
        for (const uint32_t i : group) seen[i] = true;
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), true),
                static_cast<int64_t>(vision.size()));
      EXPECT_LE(JointLoad({vision, language}, *balanced),
                JointLoad({vision, language}, *refined));
      EXPECT_LE(JointLoad({vision, language}, *balanced),
                JointLoad({vision, language}, *BalanceLpt(sums, groups)));
      joint += JointLoad({vision, language}, *balanced);
      summed += JointLoad({vision, language}, *refined);
      bound +=
          LoadLowerBound(vision, groups) + LoadLowerBound(language, groups);
    }
  }
  // Removes most of the excess over the bound that balancing the sum leaves.
  EXPECT_LT(joint - bound, 0.25 * (summed - bound));
}

TEST(BalanceJointTest, RefusesBadInput) {
  EXPECT_THAT(BalanceJoint({{1, 2}, {1}}, 1, false).status().message(),
              HasSubstr("modules have 2 and 1 costs"));
  EXPECT_FALSE(BalanceJoint({{1, 2}, {1, 2}}, 0, false).ok());
  EXPECT_FALSE(BalanceJoint({}, 1, false).ok());
}

}  // namespace
}  // namespace ballast
