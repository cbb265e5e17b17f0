#include "server/command/draw/random.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(RandomTest, StreamsRepeatAndDiffer) {
  Random a(5, 7), same(5, 7), other_stream(5, 8), other_seed(6, 7);
  // Swapped or shifted seeds and streams must give different numbers.
  Random swapped(7, 5);
  for (int i = 0; i < 100; ++i) {
    const uint64_t value = a.Next();
    EXPECT_EQ(value, same.Next());
    EXPECT_NE(value, other_stream.Next());
    EXPECT_NE(value, other_seed.Next());
    EXPECT_NE(value, swapped.Next());
  }
}

TEST(RandomTest, AForkLeavesItsOriginAsItIs) {
  Random forked(5, 7), untouched(5, 7);
  Random fork = forked.Fork(), again = forked.Fork();
  for (int i = 0; i < 100; ++i) {
    const uint64_t value = forked.Next();
    EXPECT_EQ(value, untouched.Next());
    const uint64_t other = fork.Next();
    EXPECT_NE(other, value);
    EXPECT_EQ(other, again.Next());
  }
}

TEST(RandomTest, BetweenReachesBothEndsEvenly) {
  Random random(1, 0);
  std::vector<int> counts(5);
  for (int i = 0; i < 50000; ++i) ++counts.at(random.Between(-2, 2) + 2);
  // The standard deviation of a count is 89.
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(random.Between(3, 3), 3);
  EXPECT_EQ(random.Below(1), 0u);
}

TEST(RandomTest, LognormalHasTheExpectedQuantilesAndLimits) {
  Random random(1, 0);
  std::vector<int> draws(20001);
  for (int& draw : draws) draw = random.Lognormal(1000, 0.5, 400, 2500);
  std::sort(draws.begin(), draws.end());
  EXPECT_NEAR(draws[10000], 1000, 25);
  // One standard deviation up and down: 1000 e^0.5, 1000 e^-0.5.
  EXPECT_NEAR(draws[16827], 1648.7, 50);
  EXPECT_NEAR(draws[3173], 606.5, 20);
  // e^(-0.5 * 1.83) is 0.4: about 3.3 % are clipped to it.
  EXPECT_EQ(draws[400], 400);
  EXPECT_EQ(draws[19800], 2500);
}

}  // namespace
}  // namespace ballast
