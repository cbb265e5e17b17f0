#include "server/delivery/schedule_cache.h"

#include <atomic>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

class CountingScheduler : public Scheduler {
 public:
  absl::StatusOr<v1::StepSchedule> Schedule(uint64_t step) const override {
    ++computed;
    if (on_schedule != nullptr) on_schedule(step);
    if (step == 666) return absl::OutOfRangeError("no such step");
    v1::StepSchedule schedule;
    schedule.set_step(step);
    const auto changed = fingerprint_from.upper_bound(step);
    schedule.set_fingerprint(changed == fingerprint_from.begin()
                                 ? "own"
                                 : std::prev(changed)->second);
    return schedule;
  }
  const v1::Fingerprint& fingerprint() const override { return fingerprint_; }
  const v1::Job& job() const override { return job_; }

  mutable std::atomic<int> computed{0};
  std::function<void(uint64_t step)> on_schedule;
  std::map<uint64_t, std::string> fingerprint_from;  // from each step on

 private:
  v1::Fingerprint fingerprint_;
  v1::Job job_;
};

TEST(ScheduleCacheTest, ComputesOnceAndForgetsTheLeastRecentlyUsed) {
  CountingScheduler scheduler;
  ScheduleCache cache(&scheduler, 2);
  EXPECT_EQ((*cache.Get(1))->step(), 1);
  EXPECT_EQ((*cache.Get(2))->step(), 2);
  EXPECT_EQ((*cache.Get(1))->step(), 1);
  EXPECT_EQ(scheduler.computed, 2);
  EXPECT_EQ((*cache.Get(3))->step(), 3);  // in place of 2
  EXPECT_EQ((*cache.Get(1))->step(), 1);
  EXPECT_EQ(scheduler.computed, 3);
  EXPECT_EQ((*cache.Get(2))->step(), 2);
  EXPECT_EQ(scheduler.computed, 4);
}

TEST(ScheduleCacheTest, DoesNotCacheErrors) {
  CountingScheduler scheduler;
  ScheduleCache cache(&scheduler, 2);
  EXPECT_EQ(cache.Get(666).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(cache.Get(666).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(scheduler.computed, 2);
}

TEST(ScheduleCacheTest, ConcurrentCallersGetTheSameSchedule) {
  CountingScheduler scheduler;
  ScheduleCache cache(&scheduler, 8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&cache] {
      for (uint64_t step = 0; step < 5; ++step) {
        EXPECT_EQ((*cache.Get(step))->step(), step);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(scheduler.computed, 5);
}

// A step that does not exist is asked for far beyond those that are trained.
TEST(ScheduleCacheTest, OnlyStepsThatAreGivenOutAreReached) {
  CountingScheduler scheduler;
  uint64_t kept = 0;
  StepGate gate(0, [&](uint64_t below) {
    kept = below;
    return absl::OkStatus();
  });
  gate.Begin();
  ScheduleCache cache(&scheduler, 2, nullptr, &gate);
  EXPECT_EQ(cache.Get(666).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(gate.reached_below(), 0u);
  EXPECT_EQ(kept, 0u);
  EXPECT_TRUE(cache.Get(3).ok());
  EXPECT_EQ(gate.reached_below(), 4u);
  EXPECT_EQ(kept, 3 + StepGate::kAhead);
  EXPECT_FALSE(gate.Hold(3, "agreeing"));
  EXPECT_TRUE(gate.Hold(4, "agreeing"));
}

TEST(ScheduleCacheTest, NoChangeBeginsAtAStepThatIsBeingMade) {
  CountingScheduler scheduler;
  StepGate gate(0, [](uint64_t) { return absl::OkStatus(); });
  gate.Begin();
  scheduler.on_schedule = [&](uint64_t step) {
    EXPECT_EQ(gate.reached_below(), step + 1);
    EXPECT_FALSE(gate.Hold(step, "agreeing"));
    EXPECT_TRUE(gate.Hold(step + 1, "agreeing"));
  };
  ScheduleCache cache(&scheduler, 2, nullptr, &gate);
  EXPECT_TRUE(cache.Get(3).ok());
  EXPECT_TRUE(absl::IsUnavailable(cache.Get(4).status()));
}

TEST(ScheduleCacheTest, AStepThatCannotBeKeptIsNotGivenOut) {
  CountingScheduler scheduler;
  absl::Status disk = absl::ResourceExhaustedError("full");
  StepGate gate(0, [&](uint64_t) { return disk; });
  gate.Begin();
  ScheduleCache cache(&scheduler, 2, nullptr, &gate);
  EXPECT_TRUE(absl::IsUnavailable(cache.Get(3).status()));
  EXPECT_EQ(gate.reached_below(), 0u);
  disk = absl::OkStatus();
  EXPECT_TRUE(cache.Get(3).ok());
  EXPECT_EQ(gate.reached_below(), 4u);
}

// A change may begin at a step that was refused, so that nothing of it is kept.
class RefusedStepTest : public testing::Test {
 protected:
  RefusedStepTest() {
    gate_.Begin();
    scheduler_.on_schedule = [this](uint64_t step) {
      if (during_ != nullptr) during_(step);
    };
  }
  // As a change does that begins at `step`.
  void Change(uint64_t step) {
    ASSERT_TRUE(gate_.Hold(step, "agreeing"));
    scheduler_.fingerprint_from[step] = "changed";
    ASSERT_TRUE(gate_.Hold(std::nullopt, ""));
  }
  std::string FingerprintOf(
      const absl::StatusOr<std::shared_ptr<const v1::StepSchedule>>& schedule) {
    return schedule.ok() ? schedule.value()->fingerprint()
                         : schedule.status().ToString();
  }

  absl::Status disk_;
  StepGate gate_{0, [this](uint64_t) { return disk_; }};
  CountingScheduler scheduler_;
  std::function<void(uint64_t)> during_;
  ScheduleCache cache_{&scheduler_, 4, nullptr, &gate_};
};

TEST_F(RefusedStepTest, AFullDiskLeavesNothingOfTheConfigurationBefore) {
  disk_ = absl::ResourceExhaustedError("full");
  EXPECT_TRUE(absl::IsUnavailable(cache_.Get(9).status()));
  disk_ = absl::OkStatus();
  Change(9);
  EXPECT_EQ(FingerprintOf(cache_.Peek(9)), "changed");
  EXPECT_EQ(FingerprintOf(cache_.Get(9)), "changed");
}

TEST_F(RefusedStepTest, NorDoesAServerThatIsClosedWhileAStepIsInside) {
  during_ = [&](uint64_t) { gate_.Close(absl::UnavailableError("asks")); };
  EXPECT_TRUE(absl::IsUnavailable(cache_.Get(9).status()));
  during_ = nullptr;
  gate_.Close(absl::OkStatus());
  Change(9);
  EXPECT_EQ(FingerprintOf(cache_.Get(9)), "changed");
}

// Those who come while it is computed get what the first one gets.
TEST_F(RefusedStepTest, WhoWaitsForARefusedStepIsRefused) {
  disk_ = absl::ResourceExhaustedError("full");
  std::vector<std::thread> others;
  std::atomic<int> refused{0};
  std::atomic<int> looked{0};
  during_ = [&](uint64_t) {
    if (!others.empty()) return;
    for (int i = 0; i < 4; ++i) {
      others.emplace_back(
          [&] { refused += absl::IsUnavailable(cache_.Get(9).status()); });
      others.emplace_back([&] { looked += cache_.Peek(9).ok(); });
    }
  };
  EXPECT_TRUE(absl::IsUnavailable(cache_.Get(9).status()));
  for (std::thread& other : others) other.join();
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(looked, 4);
  EXPECT_EQ(gate_.reached_below(), 0u);
  disk_ = absl::OkStatus();
  Change(9);
  EXPECT_EQ(FingerprintOf(cache_.Get(9)), "changed");
}

}  // namespace
}  // namespace ballast
