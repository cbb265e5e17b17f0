#include "common/ticker.h"

#include <atomic>

#include <gtest/gtest.h>

#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

TEST(TickerTest, TicksOncePerPeriodUntilItIsDestroyed) {
  ManualClock clock;
  std::atomic<int> ticks = 0;
  {
    auto ticker = Ticker::Start(
        "count", [] { return absl::Seconds(5); }, [&] { ++ticks; }, &clock);
    ASSERT_TRUE(ticker.ok()) << ticker.status();
    clock.AwaitSleepers(1);
    EXPECT_EQ(ticks, 0);
    clock.Advance(absl::Seconds(4));
    EXPECT_EQ(ticks, 0);
    for (int tick = 1; tick <= 3; ++tick) {
      clock.Advance(absl::Seconds(5));
      clock.AwaitSleepers(1);
      EXPECT_EQ(ticks, tick);
    }
  }
  clock.Advance(absl::Seconds(50));
  EXPECT_EQ(ticks, 3);
}

}  // namespace
}  // namespace ballast
