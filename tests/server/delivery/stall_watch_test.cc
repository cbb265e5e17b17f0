#include "server/delivery/stall_watch.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ActiveSample Work(uint64_t ordinal) {
  ActiveSample work;
  work.module = v1::MODULE_VISION;
  work.ordinal = ordinal;
  work.stage = "reading";
  return work;
}

std::vector<uint64_t> Ordinals(const std::vector<ActiveSample>& all) {
  std::vector<uint64_t> ordinals;
  for (const ActiveSample& work : all) ordinals.push_back(work.ordinal);
  return ordinals;
}

constexpr absl::Duration kAfter = absl::Seconds(10);

TEST(StalledTest, ListsLongStagesOldestFirst) {
  ManualClock clock;
  ActiveSamples board(&clock);
  ActiveSamples::Scope first(&board, Work(1));
  clock.Advance(absl::Seconds(4));
  ActiveSamples::Scope second(&board, Work(2));
  const auto stalled = [&] {
    return Ordinals(Stalled(board.List(), clock.Now(), kAfter));
  };
  clock.Advance(absl::Seconds(5.5));
  EXPECT_THAT(stalled(), IsEmpty());
  clock.Advance(absl::Seconds(0.5));
  EXPECT_THAT(stalled(), ElementsAre(1));
  clock.Advance(absl::Seconds(4));
  EXPECT_THAT(stalled(), ElementsAre(1, 2));
  first.Stage("decoding");  // next stage
  EXPECT_THAT(stalled(), ElementsAre(2));
  clock.Advance(absl::Seconds(10));
  EXPECT_THAT(stalled(), ElementsAre(2, 1));
}

TEST(StallReportsTest, ReportsEachStallOnce) {
  ManualClock clock;
  ActiveSamples board(&clock);
  StallReports reports;
  const auto fresh = [&] {
    return Ordinals(reports.New(Stalled(board.List(), clock.Now(), kAfter)));
  };
  auto first = std::make_unique<ActiveSamples::Scope>(&board, Work(1));
  clock.Advance(kAfter);
  EXPECT_THAT(fresh(), ElementsAre(1));
  EXPECT_THAT(fresh(), IsEmpty());
  ActiveSamples::Scope second(&board, Work(2));
  clock.Advance(kAfter);
  EXPECT_THAT(fresh(), ElementsAre(2));
  // Another stage of the same sample is another stall.
  first->Stage("decoding");
  EXPECT_THAT(fresh(), IsEmpty());
  clock.Advance(kAfter);
  EXPECT_THAT(fresh(), ElementsAre(1));
  first.reset();
  EXPECT_THAT(fresh(), IsEmpty());
}

TEST(ActiveSamplesTest, IsEmptyWhenAllIsDone) {
  ManualClock clock;
  ActiveSamples board(&clock);
  {
    ActiveSamples::Scope entry(&board, Work(1));
    EXPECT_EQ(board.List().size(), 1u);
    EXPECT_STREQ(board.List()[0].stage, "reading");
  }
  EXPECT_THAT(board.List(), IsEmpty());
  ActiveSamples::Scope nothing(nullptr, Work(1));
  nothing.Stage("decoding");
}

TEST(StallWatchTest, ChecksPeriodically) {
  ManualClock clock;
  ActiveSamples board(&clock);
  Mutex mutex;
  CondVar changed;
  std::vector<std::string> told;
  const auto watch = StallWatch::Start(
      &board, kAfter,
      [&](const ActiveSample& work) {
        MutexLock lock(&mutex);
        told.push_back(absl::StrCat(work.stage, " ", work.ordinal));
        changed.NotifyAll();
        return told.back();
      },
      &clock);
  ASSERT_TRUE(watch.ok()) << watch.status();
  ActiveSamples::Scope entry(&board, Work(7));
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ((*watch)->Stalls().empty(), i < 4);
    clock.AwaitSleepers(1);
    clock.Advance(absl::Seconds(2.5));
  }
  MutexLock lock(&mutex);
  while (told.empty()) changed.Wait(&mutex);
  EXPECT_THAT(told, ElementsAre("reading 7"));
}

}  // namespace
}  // namespace ballast
