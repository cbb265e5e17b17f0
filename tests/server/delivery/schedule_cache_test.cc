#include "server/delivery/schedule_cache.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

class CountingScheduler : public Scheduler {
 public:
  absl::StatusOr<v1::StepSchedule> Schedule(uint64_t step) const override {
    ++computed;
    if (step == 666) return absl::OutOfRangeError("no such step");
    v1::StepSchedule schedule;
    schedule.set_step(step);
    return schedule;
  }
  const v1::Fingerprint& fingerprint() const override { return fingerprint_; }
  const v1::Job& job() const override { return job_; }

  mutable std::atomic<int> computed{0};

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

}  // namespace
}  // namespace ballast
