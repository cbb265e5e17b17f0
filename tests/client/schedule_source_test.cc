#include "client/schedule_source.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ScheduleSource::Options OptionsWith(Clock* clock) {
  ScheduleSource::Options options;
  options.fingerprint = kSyntheticFingerprint;
  options.failover.jitter = 0;
  options.failover.first_backoff = absl::Seconds(1);
  options.failover.patience = absl::Seconds(3);
  options.clock = clock;
  return options;
}

// A server that returns `status` for its first `failures` calls, and counts its
// calls.
FakeLoader Failing(int failures, const absl::Status& status, int* calls) {
  FakeLoader loader;
  loader.on_schedule = [=](v1::StepSchedule*) {
    return (*calls)++ < failures ? status : absl::OkStatus();
  };
  return loader;
}

TEST(ScheduleSourceTest, AsksOncePerStep) {
  int calls = 0;
  const auto client = FakeLoaderClient(Failing(0, absl::OkStatus(), &calls));
  LoaderClient* const servers[] = {client.get()};
  ScheduleSource source(servers, OptionsWith(Clock::Real()));
  for (const uint64_t step : {7, 7, 8, 8, 8, 7}) {
    const auto schedule = source.Get(step);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ((*schedule)->step(), step);
  }
  EXPECT_EQ(calls, 3);
}

TEST(ScheduleSourceTest, AsksTheNextServerAndStaysThere) {
  int first = 0, second = 0;
  const auto a = FakeLoaderClient(
      Failing(100, absl::DeadlineExceededError("hangs"), &first));
  const auto b = FakeLoaderClient(Failing(0, absl::OkStatus(), &second));
  LoaderClient* const servers[] = {a.get(), b.get()};
  ManualClock clock;
  ScheduleSource source(servers, OptionsWith(&clock));
  EXPECT_TRUE(source.Get(0).ok());
  EXPECT_TRUE(source.Get(1).ok());
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
  EXPECT_TRUE(clock.sleeps().empty());
}

TEST(ScheduleSourceTest, WaitsLongerEachTimeAndGivesUp) {
  int calls = 0;
  const auto client = FakeLoaderClient(
      Failing(100, absl::UnavailableError("restarting"), &calls));
  LoaderClient* const servers[] = {client.get()};
  ManualClock clock;
  ScheduleSource source(servers, OptionsWith(&clock));
  absl::Status end;
  std::thread getter([&] { end = source.Get(5).status(); });
  clock.AwaitSleepers(1);
  clock.Advance(absl::Seconds(1));
  clock.AwaitSleepers(1);
  clock.Advance(absl::Seconds(2));
  getter.join();
  EXPECT_EQ(calls, 3);
  EXPECT_THAT(clock.sleeps(), ElementsAre(absl::Seconds(1), absl::Seconds(2)));
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(end.message(),
              HasSubstr("schedule of step 5: the only server cannot go on, 3s "
                        "after"));
}

TEST(ScheduleSourceTest, LastingErrorsOfTheOnlyServerAreNotRetried) {
  int calls = 0;
  const auto client =
      FakeLoaderClient(Failing(1, absl::InternalError("malformed"), &calls));
  LoaderClient* const servers[] = {client.get()};
  ManualClock clock;
  ScheduleSource source(servers, OptionsWith(&clock));
  EXPECT_EQ(source.Get(0).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(calls, 1);
}

TEST(ScheduleSourceTest, OneServersLastingFaultIsNotAnothers) {
  int first = 0, second = 0;
  const auto a =
      FakeLoaderClient(Failing(1, absl::InternalError("malformed"), &first));
  const auto b = FakeLoaderClient(Failing(0, absl::OkStatus(), &second));
  LoaderClient* const servers[] = {a.get(), b.get()};
  ManualClock clock;
  ScheduleSource source(servers, OptionsWith(&clock));
  EXPECT_TRUE(source.Get(0).ok());
  EXPECT_EQ(second, 1);
}

// A server that was restarted with other data, beside one with the job's.
TEST(ScheduleSourceTest, LeavesAServerWhoseFingerprintHasChanged) {
  FakeLoader other;
  other.on_schedule = [](v1::StepSchedule* schedule) {
    schedule->set_fingerprint("0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f");
    return absl::OkStatus();
  };
  int calls = 0;
  const auto a = FakeLoaderClient(other);
  const auto b = FakeLoaderClient(Failing(0, absl::OkStatus(), &calls));
  LoaderClient* const servers[] = {a.get(), b.get()};
  ManualClock clock;
  ScheduleSource source(servers, OptionsWith(&clock));
  const auto schedule = source.Get(3);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ((*schedule)->fingerprint(), kSyntheticFingerprint);
  EXPECT_EQ(calls, 1);
}

TEST(ScheduleSourceTest, CancelEndsTheWait) {
  int calls = 0;
  const auto client =
      FakeLoaderClient(Failing(100, absl::UnavailableError("down"), &calls));
  LoaderClient* const servers[] = {client.get()};
  ManualClock clock;
  ScheduleSource source(servers, OptionsWith(&clock));
  absl::Status end;
  std::thread getter([&] { end = source.Get(0).status(); });
  clock.AwaitSleepers(1);
  source.Cancel();
  getter.join();
  EXPECT_EQ(end.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace ballast
