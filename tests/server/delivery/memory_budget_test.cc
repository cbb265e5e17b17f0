#include "server/delivery/memory_budget.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(MemoryBudgetTest, AStreamThatHoldsNothingMayHoldAnything) {
  MemoryBudget budget(100, 4);
  EXPECT_EQ(budget.share(), 25);
  EXPECT_TRUE(budget.TryReserve(1, 1000));
  EXPECT_TRUE(budget.TryReserve(2, 1));
  EXPECT_EQ(budget.total(), 1001);
}

TEST(MemoryBudgetTest, PrefetchingStaysWithinTheShare) {
  MemoryBudget budget(100, 4);
  EXPECT_TRUE(budget.TryReserve(1, 10));
  EXPECT_TRUE(budget.TryReserve(1, 15));
  EXPECT_FALSE(budget.TryReserve(1, 1));
  EXPECT_TRUE(budget.TryReserve(2, 25));
  budget.Release(1, 10);
  EXPECT_TRUE(budget.TryReserve(1, 10));
  EXPECT_FALSE(budget.TryReserve(1, UINT64_MAX));
}

TEST(MemoryBudgetTest, PrefetchingStaysWithinTheWholeToo) {
  MemoryBudget budget(100, 2);
  EXPECT_TRUE(budget.TryReserve(1, 90));  // larger than its share
  EXPECT_TRUE(budget.TryReserve(2, 10));
  EXPECT_FALSE(budget.TryReserve(2, 1));  // within the share, not the whole
  budget.Release(1, 90);
  EXPECT_TRUE(budget.TryReserve(2, 1));
}

// The bound that the header states, for one greedy stream a rank whose blocks
// fit a share: `memory`.
TEST(MemoryBudgetTest, WithAStreamARankTheWholeIsTheBound) {
  MemoryBudget budget(1000, 3);
  for (uint64_t round = 0; round < 100; ++round) {
    for (uint64_t stream = 1; stream <= 3; ++stream) {
      const uint64_t bytes = 1 + (round * 7 + stream) % 50;
      uint64_t reserved = 0;
      while (budget.TryReserve(stream, bytes)) reserved += bytes;
      EXPECT_LE(budget.total(), 1000);
      budget.Release(stream, reserved);
      if (round % 3 == 0) budget.TryReserve(stream, bytes);
    }
  }
}

TEST(MemoryBudgetTest, ReleasingAllLeavesNothing) {
  MemoryBudget budget(100, 0);  // 0 shares count as 1
  EXPECT_EQ(budget.share(), 100);
  EXPECT_TRUE(budget.TryReserve(7, 60));
  EXPECT_TRUE(budget.TryReserve(7, 40));
  budget.Release(7, 60);
  EXPECT_EQ(budget.held(7), 40);
  budget.Release(7, 40);
  EXPECT_EQ(budget.total(), 0);
  budget.Release(7, 40);  // of a stream that holds nothing: no effect
  EXPECT_EQ(budget.total(), 0);
}

}  // namespace
}  // namespace ballast
