#include "server/delivery/stall_watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/delivery/loader.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_sample_builder.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"
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

TEST(NothingGoesOnTest, IsTrueOnceAllWorkHasStalled) {
  ManualClock clock;
  ActiveSamples board(&clock);
  const auto nothing_goes_on = [&] {
    return NothingGoesOn(Stalled(board.List(), clock.Now(), kAfter),
                         board.last_begun(), clock.Now(), kAfter);
  };
  EXPECT_FALSE(nothing_goes_on()) << "nothing is to be done";
  ActiveSamples::Scope stalled(&board, Work(1));
  clock.Advance(kAfter);
  EXPECT_TRUE(nothing_goes_on());
  // Another worker makes progress.
  { const ActiveSamples::Scope other(&board, Work(2)); }
  EXPECT_FALSE(nothing_goes_on());
  clock.Advance(kAfter);
  EXPECT_TRUE(nothing_goes_on());
  stalled.Stage("decoding");
  EXPECT_FALSE(nothing_goes_on());
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

// A clock whose reading takes long enough for others to look at the board.
class SlowClock final : public Clock {
 public:
  absl::Time Now() override {
    if (look != nullptr) look();
    return clock.Now();
  }
  std::unique_ptr<Sleeper> NewSleeper() override { return clock.NewSleeper(); }

  ManualClock clock;
  std::function<void()> look;
};

TEST(ActiveSamplesTest, NeverListsASampleWithoutItsStart) {
  SlowClock clock;
  ActiveSamples board(&clock);
  clock.clock.Advance(absl::Hours(1));
  int looks = 0;
  clock.look = [&] {
    ++looks;
    EXPECT_THAT(
        Ordinals(Stalled(board.List(), clock.clock.Now(), absl::Minutes(1))),
        IsEmpty());
  };
  ActiveSamples::Scope scope(&board, Work(1));
  scope.Stage("decoding");
  EXPECT_GE(looks, 2);
}

TEST(StallWatchdogTest, ChecksPeriodically) {
  ManualClock clock;
  ActiveSamples board(&clock);
  Mutex mutex;
  CondVar changed;
  std::vector<std::string> told;
  const auto watch = StallWatchdog::Start(
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

TEST(StallWatchdogTest, TellsWhenNothingGoesOnAndWhenItDoesAgain) {
  ManualClock clock;
  ActiveSamples board(&clock);
  const auto watch = StallWatchdog::Start(
      &board, kAfter, [](const ActiveSample&) { return "it"; }, &clock);
  ASSERT_TRUE(watch.ok()) << watch.status();
  Mutex mutex;
  CondVar changed;
  std::vector<bool> told;
  (*watch)->WatchStandstill([&](bool stands_still) {
    MutexLock lock(&mutex);
    told.push_back(stands_still);
    changed.NotifyAll();
  });
  auto stalled = std::make_unique<ActiveSamples::Scope>(&board, Work(7));
  for (const size_t wanted : {1, 2}) {
    for (int i = 0; i < 5; ++i) {
      clock.AwaitSleepers(1);
      clock.Advance(kAfter / 4);
    }
    MutexLock lock(&mutex);
    while (told.size() < wanted) changed.Wait(&mutex);
    stalled.reset();
  }
  (*watch)->WatchStandstill(nullptr);
  EXPECT_THAT(told, ElementsAre(true, false));
}

// An index on a file system that has stopped answering: look-ups do not return
// until it answers again.
class HangingIndex final : public SourceIndex {
 public:
  uint64_t size() const override { return index_.size(); }
  absl::StatusOr<IndexedSample> sample(uint64_t ordinal) const override {
    MutexLock lock(&mutex_);
    if (hangs_) {
      ++hanging_;
      changed_.NotifyAll();
      while (hangs_) changed_.Wait(&mutex_);
      --hanging_;
    }
    return index_.sample(ordinal);
  }
  std::string digest() const override { return index_.digest(); }

  void Hang() {
    MutexLock lock(&mutex_);
    hangs_ = true;
  }
  void AwaitHanging(int lookups) {
    MutexLock lock(&mutex_);
    while (hanging_ < lookups) changed_.Wait(&mutex_);
  }
  void Answer() {
    MutexLock lock(&mutex_);
    hangs_ = false;
    changed_.NotifyAll();
  }

 private:
  const FakeSourceIndex index_{FormulaSamples(97)};
  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable int hanging_ ABSL_GUARDED_BY(mutex_) = 0;
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;
};

// By a stream's plan, a query and a watcher alike.
TEST(StallWatchdogTest, AnIndexThatHangsIsAStallOfTheSchedule) {
  ManualClock clock;
  ActiveSamples active(&clock);
  HangingIndex index;
  v1::Config config = JobConfig(1, 1, 8, 8);
  config.mutable_serve()->set_threads(3);
  const auto scheduler = Scheduler::Create(config, {&index});
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  index.Hang();
  auto loader =
      Loader::Create(config, 2, scheduler->get(),
                     std::make_unique<FakeSampleBuilder>(), &clock, &active);
  ASSERT_TRUE(loader.ok()) << loader.status();
  v1::Role role;
  role.set_module(v1::MODULE_VISION);
  const auto stream = (*loader)->OpenStream(role, 3, 0, 1, [] {});
  ASSERT_TRUE(stream.ok()) << stream.status();
  (*loader)->GetSchedule(5, [](const auto&) {});
  (*loader)->PeekSchedule(7, [](const auto&) {});
  index.AwaitHanging(3);
  clock.Advance(kAfter);
  std::set<uint64_t> steps;
  for (const ActiveSample& work : Stalled(active.List(), clock.Now(), kAfter)) {
    EXPECT_STREQ(work.stage, "looking samples up in the index");
    ASSERT_TRUE(work.step.has_value());
    steps.insert(*work.step);
  }
  EXPECT_THAT(steps, ElementsAre(3, 5, 7));
  index.Answer();
  loader->reset();
  EXPECT_THAT(active.List(), IsEmpty());
}

}  // namespace
}  // namespace ballast
