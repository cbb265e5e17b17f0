#include "common/clock.h"

#include <thread>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ballast
