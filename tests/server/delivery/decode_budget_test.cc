#include "server/delivery/decode_budget.h"

#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "server/media/image/image.h"

namespace ballast {
namespace {

void AwaitWaiting(const DecodeBudget& budget, uint64_t callers) {
  while (budget.usage().waiting < callers) std::this_thread::yield();
}

TEST(DecodeBudgetTest, LendsAndTakesBack) {
  DecodeBudget budget(10);
  {
    const auto first = budget.Take(4);
    const auto second = budget.Take(6);
    EXPECT_EQ(budget.usage().in_use, 10u);
  }
  EXPECT_EQ(budget.usage().in_use, 0u);
  // All there is, for what would never fit.
  const auto all = budget.Take(11);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(budget.usage().in_use, 10u);
}

TEST(DecodeBudgetTest, ALargeRequestIsNotOvertaken) {
  DecodeBudget budget(10);
  std::optional<DecodeBudget::Lease> held;
  held.emplace(*budget.Take(5));
  std::atomic<int> order = 0;
  int large = 0;
  int small = 0;
  std::thread one([&] {
    const auto lease = budget.Take(10);
    large = ++order;
  });
  AwaitWaiting(budget, 1);
  // There is room for it, and yet it comes after the large one.
  std::thread other([&] {
    const auto lease = budget.Take(1);
    small = ++order;
  });
  AwaitWaiting(budget, 2);
  EXPECT_EQ(budget.usage().in_use, 5u);
  held.reset();
  one.join();
  other.join();
  EXPECT_EQ(large, 1);
  EXPECT_EQ(small, 2);
}

TEST(DecodeBudgetTest, StaysWithinItsBytes) {
  constexpr uint64_t kBytes = 100;
  DecodeBudget budget(kBytes);
  std::atomic<uint64_t> in_use = 0;
  std::atomic<uint64_t> most = 0;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 2000; ++i) {
        const uint64_t bytes = random() % kBytes + 1;
        const auto lease = budget.Take(bytes);
        ASSERT_TRUE(lease.ok());
        const uint64_t now = in_use += bytes;
        uint64_t before = most;
        while (before < now && !most.compare_exchange_weak(before, now)) {
        }
        in_use -= bytes;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, kBytes);
  EXPECT_EQ(budget.usage().in_use, 0u);
  EXPECT_EQ(budget.usage().waiting, 0u);
}

TEST(DecodeBudgetTest, CloseEndsWaits) {
  DecodeBudget budget(10);
  const auto held = budget.Take(10);
  std::thread waiting(
      [&] { EXPECT_TRUE(absl::IsCancelled(budget.Take(1).status())); });
  AwaitWaiting(budget, 1);
  budget.Close();
  waiting.join();
  EXPECT_TRUE(absl::IsCancelled(budget.Take(1).status()));
}

TEST(DecodeBudgetTest, AutoIsAQuarterOfTheMachine) {
  const uint64_t gib = uint64_t{1} << 30;
  EXPECT_EQ(DecodeBudgetBytes(0, 64 * gib), 16 * gib);
  EXPECT_EQ(DecodeBudgetBytes(0, gib), kMaxImageMemory);
  EXPECT_EQ(DecodeBudgetBytes(0, 0), kMaxImageMemory);
  EXPECT_EQ(DecodeBudgetBytes(3 * gib, gib), 3 * gib);
}

}  // namespace
}  // namespace ballast
