#include "server/serve/relay/work_budgets.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

TEST(WorkBudgetsTest, APeerGetsItsRateAndItsBurst) {
  WorkBudgets budgets(0.25, absl::Seconds(1));
  // A burst, at once.
  EXPECT_EQ(budgets.Spend("a", absl::Seconds(1), kStart), absl::ZeroDuration());
  // A tenth of a second of work takes 0.4 s.
  EXPECT_EQ(budgets.Spend("a", absl::Milliseconds(100), kStart),
            absl::Milliseconds(400));
  EXPECT_EQ(budgets.Spend("a", absl::Milliseconds(100), kStart),
            absl::Milliseconds(800));
  // Others have their own.
  EXPECT_EQ(budgets.Spend("b", absl::Milliseconds(100), kStart),
            absl::ZeroDuration());
  // What was waited for is paid; the burst comes back as slowly.
  EXPECT_EQ(budgets.Spend("a", absl::Milliseconds(100),
                          kStart + absl::Milliseconds(800)),
            absl::Milliseconds(400));
  EXPECT_EQ(budgets.Spend("a", absl::Seconds(1), kStart + absl::Seconds(6)),
            absl::ZeroDuration());
}

TEST(WorkBudgetsTest, WorkThatWasNotDoneIsGivenBack) {
  WorkBudgets budgets(0.25, absl::Seconds(1));
  budgets.Spend("a", absl::Seconds(3), kStart);
  budgets.GiveBack("a", absl::Seconds(2));
  budgets.GiveBack("nobody", absl::Seconds(2));
  EXPECT_EQ(budgets.Spend("a", absl::Milliseconds(100), kStart),
            absl::Milliseconds(400));
}

TEST(WorkBudgetsTest, ManyPeersAreForgotten) {
  WorkBudgets budgets(1, absl::Seconds(1));
  EXPECT_EQ(budgets.Spend("debtor", absl::Seconds(11), kStart),
            absl::Seconds(10));
  for (int i = 0; i < 5000; ++i) {
    budgets.Spend(std::to_string(i), absl::Microseconds(1), kStart);
  }
  EXPECT_EQ(budgets.Spend("debtor", absl::ZeroDuration(), kStart),
            absl::Seconds(10));
}

}  // namespace
}  // namespace ballast
