#include "common/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

TEST(ClockTest, RealSleepEndsAfterItsTime) {
  Clock* const clock = Clock::Real();
  const absl::Time start = clock->Now();
  EXPECT_TRUE(clock->NewSleeper()->Sleep(absl::Milliseconds(1)));
  EXPECT_GE(clock->Now() - start, absl::Milliseconds(1));
}

TEST(ClockTest, WakeEndsARealSleep) {
  const std::unique_ptr<Sleeper> sleeper = Clock::Real()->NewSleeper();
  std::thread waker([&] { sleeper->Wake(); });
  EXPECT_FALSE(sleeper->Sleep(absl::Hours(1)));
  waker.join();
  EXPECT_FALSE(sleeper->Sleep(absl::Hours(1)));  // for all later sleeps
}

TEST(ManualClockTest, SleepLastsUntilTheClockAdvances) {
  ManualClock clock;
  const absl::Time start = clock.Now();
  const std::unique_ptr<Sleeper> sleeper = clock.NewSleeper();
  std::thread slept([&] {
    EXPECT_TRUE(sleeper->Sleep(absl::Seconds(2)));
    EXPECT_EQ(clock.Now() - start, absl::Seconds(2));
  });
  clock.AwaitSleepers(1);
  clock.Advance(absl::Seconds(1));
  clock.AwaitSleepers(1);  // not yet due
  clock.Advance(absl::Seconds(1));
  slept.join();
  EXPECT_EQ(clock.sleeps(), std::vector<absl::Duration>{absl::Seconds(2)});
}

TEST(ManualClockTest, WakeEndsASleep) {
  ManualClock clock;
  const std::unique_ptr<Sleeper> sleeper = clock.NewSleeper();
  std::thread slept([&] { EXPECT_FALSE(sleeper->Sleep(absl::Seconds(2))); });
  clock.AwaitSleepers(1);
  sleeper->Wake();
  slept.join();
}

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
