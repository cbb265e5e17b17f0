#include "server/delivery/schedule_cache.h"

#include <atomic>
#include <functional>
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
    return schedule;
  }
  const v1::Fingerprint& fingerprint() const override { return fingerprint_; }
  const v1::Job& job() const override { return job_; }

  mutable std::atomic<int> computed{0};
  std::function<void(uint64_t step)> on_schedule;

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

}  // namespace
}  // namespace ballast
