#include "server/schedule/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>

#include "tests/fakes/shared_dir.h"

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

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The groups' members, concatenated.
std::vector<uint32_t> Flat(const Groups& groups) {
  std::vector<uint32_t> flat;
  for (const auto& group : groups) {
    flat.insert(flat.end(), group.begin(), group.end());
  }
  return flat;
}

double LargestLoad(const std::vector<double>& costs, const Groups& groups) {
  const std::vector<double> loads = GroupLoads(costs, groups);
  return *std::max_element(loads.begin(), loads.end());
}

void ExpectPartition(const Groups& groups, size_t n) {
  std::vector<uint32_t> flat = Flat(groups);
  std::sort(flat.begin(), flat.end());
  std::vector<uint32_t> all(n);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(flat, all);
}

// Receipt-like: heights vary around a common width.
std::vector<double> ReceiptCosts(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> costs;
  for (size_t i = 0; i < n; ++i) costs.push_back(4 * (400 + random() % 700));
  return costs;
}

// Worked examples from the reference.
TEST(BalanceLptTest, AgreesWithTheReferencesExamples) {
  EXPECT_THAT(*BalanceLpt({10, 1, 9, 2, 8, 3, 7, 4}, 2),
              ElementsAre(ElementsAre(0, 6, 7, 1), ElementsAre(2, 4, 5, 3)));
  EXPECT_THAT(*BalanceLpt({4, 3, 1, 2}, 2),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_THAT(*BalanceLpt({12, 1, 11, 2, 10, 3, 9, 4, 8, 5, 7, 6}, 4),
              ElementsAre(ElementsAre(0, 9, 7), ElementsAre(2, 11, 5),
                          ElementsAre(4, 10, 3), ElementsAre(6, 8, 1)));
  EXPECT_THAT(*BalanceLpt({5, 5, 5, 5}, 2),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_THAT(*BalanceLpt({100, 1, 1, 1, 1, 1, 1, 1}, 2),
              ElementsAre(ElementsAre(0, 5, 6, 7), ElementsAre(1, 2, 3, 4)));
}

TEST(BalanceLptTest, AllZeroCostsStayInOrder) {
  const std::vector<double> zeros(8, 0.0);
  EXPECT_THAT(Flat(*BalanceLpt(zeros, 4)), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(BalanceLptTest, LoadsEqualTheReferences) {
  const std::vector<double> costs = {12, 1, 11, 2, 10, 3, 9, 4, 8, 5, 7, 6};
  EXPECT_THAT(GroupLoads(costs, *BalanceLpt(costs, 4)),
              ElementsAre(21, 20, 19, 18));
}

TEST(BalanceLptTest, AgreesWithTheGoldenVectors) {
  constexpr char kGolden[] = "golden/balance_lpt.json";
  const std::optional<std::string> shared = SharedDirWith(kGolden);
  if (!shared) GTEST_SKIP() << NotShared(kGolden);
  std::ifstream file(*shared + "/" + kGolden);
  const auto golden = nlohmann::json::parse(file);
  ASSERT_FALSE(golden["cases"].empty());
  for (const auto& test_case : golden["cases"]) {
    const std::vector<double> costs = test_case["costs"];
    const uint32_t n_groups = test_case["n_groups"];
    const uint32_t dp = test_case["dp"];
    const auto groups = BalanceLpt(costs, n_groups);
    ASSERT_TRUE(groups.ok()) << groups.status();
    // [owner rank, place] of each sample.
    std::vector<std::vector<uint32_t>> assignment(costs.size());
    uint32_t place = 0;
    for (uint32_t g = 0; g < n_groups; ++g) {
      for (const uint32_t i : (*groups)[g]) {
        assignment[i] = {g / (n_groups / dp), place++};
      }
    }
    EXPECT_EQ(nlohmann::json(assignment), test_case["assignment"])
        << test_case["kind"];
  }
}

TEST(BalanceTest, RefusesInvalidInput) {
  EXPECT_THAT(BalanceLpt({1, 2}, 0).status().message(),
              HasSubstr("groups is 0"));
  EXPECT_THAT(BalanceLpt({1, 2, 3}, 2).status().message(),
              HasSubstr("3 costs do not divide into 2 groups"));
  EXPECT_THAT(BalanceLpt({1, -2}, 2).status().message(),
              HasSubstr("cost 1 is -2"));
  EXPECT_THAT(
      BalanceRefined({std::numeric_limits<double>::infinity(), 1}, 2, true)
          .status()
          .message(),
      HasSubstr("cost 0 is inf"));
  EXPECT_THAT(BalanceRefined({1, 2, 3}, 2, true).status().message(),
              HasSubstr("do not divide"));
  EXPECT_TRUE(BalanceRefined({1, 2, 3}, 2, false).ok());
}

// The smallest possible largest load, found by trying every assignment.
double BestLargestLoad(const std::vector<double>& costs, uint32_t groups,
                       bool equal_count) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<double> loads(groups, 0);
  std::vector<size_t> counts(groups, 0);
  const size_t cap = equal_count ? costs.size() / groups : costs.size();
  std::function<void(size_t)> place = [&](size_t i) {
    if (i == costs.size()) {
      best = std::min(best, *std::max_element(loads.begin(), loads.end()));
      return;
    }
    for (uint32_t g = 0; g < groups; ++g) {
      if (counts[g] == cap) continue;
      loads[g] += costs[i];
      ++counts[g];
      place(i + 1);
      loads[g] -= costs[i];
      --counts[g];
    }
  };
  place(0);
  return best;
}

TEST(BalanceRefinedTest, NearTheOptimumOfSmallCases) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const std::vector<double> costs = ReceiptCosts(9, seed);
    for (const bool equal_count : {false, true}) {
      const auto groups = BalanceRefined(costs, 3, equal_count);
      ASSERT_TRUE(groups.ok());
      ExpectPartition(*groups, costs.size());
      const double best = BestLargestLoad(costs, 3, equal_count);
      EXPECT_GE(LargestLoad(costs, *groups), best);
      EXPECT_LE(LargestLoad(costs, *groups), 1.06 * best) << "seed " << seed;
    }
  }
}

TEST(BalanceRefinedTest, NeverWorseThanLpt) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const uint32_t groups = 1 + random() % 12;
    std::vector<double> costs(groups * (1 + random() % 9));
    for (double& cost : costs) {
      // Covers uniform costs, heavy tails and many ties.
      const double u = (random() % 10000 + 1) / 10000.0;
      cost = seed % 3 == 0   ? std::floor(u * 1000)
             : seed % 3 == 1 ? std::floor(100 / std::pow(u, 1.5))
                             : std::floor(u * 4);
    }
    const double lpt = LargestLoad(costs, *BalanceLpt(costs, groups));
    for (const bool equal_count : {false, true}) {
      const auto refined = BalanceRefined(costs, groups, equal_count);
      ASSERT_TRUE(refined.ok());
      ExpectPartition(*refined, costs.size());
      EXPECT_LE(LargestLoad(costs, *refined), lpt) << "seed " << seed;
      if (equal_count) {
        for (const auto& group : *refined) {
          EXPECT_EQ(group.size(), costs.size() / groups);
        }
      }
    }
  }
}

// The best result of a long random search: annealing over moves and swaps from
// several starts.
double LongSearch(const std::vector<double>& costs, uint32_t groups,
                  bool equal_count, uint32_t seed) {
  std::mt19937 random(seed);
  const size_t n = costs.size();
  double best = std::numeric_limits<double>::infinity();
  for (int start = 0; start < 4; ++start) {
    std::vector<uint32_t> group_of(n);
    std::vector<double> loads(groups, 0);
    for (size_t i = 0; i < n; ++i) {
      group_of[i] = i % groups;
      loads[group_of[i]] += costs[i];
    }
    const auto largest = [&] {
      return *std::max_element(loads.begin(), loads.end());
    };
    double now = largest();
    double temperature = 0.1 * now;
    for (int round = 0; round < 60000; ++round, temperature *= 0.9998) {
      const size_t a = random() % n, b = random() % n;
      const uint32_t ga = group_of[a], gb = group_of[b];
      if (ga == gb) continue;
      const bool swap = equal_count || random() % 2 == 0;
      const double amount = costs[a] - (swap ? costs[b] : 0);
      loads[ga] -= amount;
      loads[gb] += amount;
      const double next = largest();
      const double u = random() / 4294967296.0;
      if (next <= now || u < std::exp((now - next) / temperature)) {
        now = next;
        group_of[a] = gb;
        if (swap) group_of[b] = ga;
        best = std::min(best, now);
      } else {
        loads[ga] += amount;
        loads[gb] -= amount;
      }
    }
  }
  return best;
}

TEST(BalanceRefinedTest, WithinAHundredthOfALongSearchOnHeavyTails) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 random(100 + seed);
    const uint32_t groups = 3 + seed % 6;
    std::vector<double> costs(8 * groups);
    for (double& cost : costs) {
      const double u = (random() % 10000 + 1) / 10000.0;
      cost = std::floor(300 / std::pow(u, seed % 2 ? 0.5 : 0.9));
    }
    for (const bool equal_count : {false, true}) {
      const auto refined = BalanceRefined(costs, groups, equal_count);
      ASSERT_TRUE(refined.ok());
      EXPECT_LE(LargestLoad(costs, *refined),
                1.01 * LongSearch(costs, groups, equal_count, seed))
          << "seed " << seed << " equal count " << equal_count;
    }
  }
}

// A rank that owns nothing could not take part in the step.
TEST(BalanceRefinedTest, NoGroupIsEmpty) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const uint32_t groups = 1 + random() % 8;
    std::vector<double> costs(groups + random() % 20);
    for (double& cost : costs) {
      // Mostly text-only samples, which cost the vision module nothing.
      cost = random() % 4 == 0 ? random() % 1000 : 0;
    }
    const auto refined = BalanceRefined(costs, groups, false);
    ASSERT_TRUE(refined.ok());
    ExpectPartition(*refined, costs.size());
    for (const auto& group : *refined) EXPECT_FALSE(group.empty());
  }
}

TEST(BalanceRefinedTest, WithinAThousandthOfTheBoundOnReceipts) {
  for (const uint32_t groups : {4, 8, 16, 32, 64, 128}) {
    for (const bool equal_count : {false, true}) {
      const std::vector<double> costs = ReceiptCosts(8 * groups, groups);
      const auto refined = BalanceRefined(costs, groups, equal_count);
      ASSERT_TRUE(refined.ok());
      EXPECT_LE(LargestLoad(costs, *refined),
                1.001 * LoadLowerBound(costs, groups))
          << groups << " groups, equal count " << equal_count;
    }
  }
}

TEST(BalanceQuicklyTest, EndsWithinAThousandthOfTheBoundOnReceipts) {
  for (const uint32_t groups : {4u, 64u, 512u}) {
    for (const bool equal_count : {false, true}) {
      const std::vector<double> costs = ReceiptCosts(8 * groups, groups);
      const auto found = BalanceQuickly(costs, groups, equal_count);
      ASSERT_TRUE(found.ok()) << found.status();
      ExpectPartition(*found, costs.size());
      EXPECT_LE(LargestLoad(costs, *found),
                LoadLowerBound(costs, groups) * 1.001);
      for (const auto& group : *found) {
        EXPECT_GE(group.size(), equal_count ? 8u : 1u);
      }
    }
  }
  EXPECT_FALSE(BalanceQuickly({1, 2, 3}, 2, true).ok());
}

TEST(LoadLowerBoundTest, LargerOfMeanAndLargestCost) {
  EXPECT_THAT(LoadLowerBound({1, 2, 3}, 2), DoubleEq(3));
  EXPECT_THAT(LoadLowerBound({3, 3, 3}, 2), DoubleEq(4.5));
  EXPECT_THAT(LoadLowerBound({}, 2), DoubleEq(0));
}

}  // namespace

}  // namespace ballast
