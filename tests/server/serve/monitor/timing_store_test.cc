#include "server/serve/monitor/timing_store.h"

#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/synthetic_schedule.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::Job SomeJob() {
  v1::Job job;
  job.set_global_batch(16);
  job.set_micro_batch(4);
  job.set_delivery(v1::DELIVERY_EXCHANGE);
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    v1::Job::ModuleSize* size = job.add_modules();
    size->set_module(module);
    size->set_dp(2);
  }
  return job;
}

v1::StepTiming Vision(uint64_t step, double milliseconds) {
  return GetTiming(v1::MODULE_VISION, 0, step, 0, milliseconds);
}

absl::Status Add(TimingStore* store, const std::vector<v1::StepTiming>& given) {
  std::vector<const v1::StepTiming*> timings;
  for (const v1::StepTiming& timing : given) timings.push_back(&timing);
  return store->Add(timings);
}

// "STEP/MICRO-BATCH MODULE:RANK MILLISECONDS"
std::vector<std::string> Lines(const TimingStore& store, uint64_t from = 0,
                               v1::Module module = v1::MODULE_UNSPECIFIED) {
  std::vector<std::string> lines;
  for (const v1::StepTiming& timing : store.Get(from, module)) {
    lines.push_back(std::to_string(timing.step()) + "/" +
                    std::to_string(timing.micro_batch()) + " " +
                    std::to_string(timing.role().module()) + ":" +
                    std::to_string(timing.role().dp_rank()) + " " +
                    std::to_string(static_cast<int>(timing.milliseconds())));
  }
  return lines;
}

TEST(TimingStoreTest, ReturnsTimingsInOrder) {
  TimingStore store(SomeJob());
  EXPECT_THAT(Lines(store), IsEmpty());
  ASSERT_TRUE(Add(&store, {GetTiming(v1::MODULE_LANGUAGE, 1, 7, 1, 5),
                           GetTiming(v1::MODULE_LANGUAGE, 0, 7, 1, 4),
                           GetTiming(v1::MODULE_LANGUAGE, 1, 7, 0, 3)})
                  .ok());
  ASSERT_TRUE(Add(&store, {GetTiming(v1::MODULE_VISION, 1, 7, 1, 2),
                           GetTiming(v1::MODULE_VISION, 0, 6, 7, 0)})
                  .ok());
  EXPECT_THAT(Lines(store), ElementsAre("6/7 1:0 0", "7/0 2:1 3", "7/1 1:1 2",
                                        "7/1 2:0 4", "7/1 2:1 5"));
  EXPECT_THAT(Lines(store, 7, v1::MODULE_VISION), ElementsAre("7/1 1:1 2"));
  EXPECT_THAT(Lines(store, 8), IsEmpty());
}

// 16 samples a step, 2 ranks: at most 8 micro-batches; from step 3 on 12.
TEST(TimingStoreTest, MicroBatchesFollowTheSizeOfTheStep) {
  v1::Job job = SomeJob();
  job.add_step_ranges()->set_samples(16);
  v1::StepRange* larger = job.add_step_ranges();
  larger->set_first_step(3);
  larger->set_first_position(48);
  larger->set_samples(24);
  TimingStore store(job);
  const auto add = [&](uint64_t step, uint32_t micro_batch) {
    return Add(&store, {GetTiming(v1::MODULE_VISION, 0, step, micro_batch, 1)});
  };
  EXPECT_TRUE(add(2, 7).ok());
  EXPECT_FALSE(add(2, 8).ok());
  EXPECT_TRUE(add(3, 11).ok());
  EXPECT_THAT(std::string(add(3, 12).message()),
              HasSubstr("a step of 24 samples"));
}

// Of batch.tokens only the schedule has a step's size, and ranks that share
// packs train on fewer samples in each micro-batch.
TEST(TimingStoreTest, TakesWhatSchedulesMayHave) {
  const auto add = [](const v1::Job& job, uint32_t micro_batch) {
    TimingStore store(job);
    return Add(&store, {GetTiming(v1::MODULE_VISION, 0, 99, micro_batch, 1)});
  };
  v1::Job job = SomeJob();
  job.add_step_ranges();
  EXPECT_TRUE(add(job, 8).ok());
  job = SomeJob();
  EXPECT_FALSE(add(job, 8).ok());
  job.set_dynamic_cp(2);
  EXPECT_TRUE(add(job, 15).ok());
  EXPECT_FALSE(add(job, 16).ok());
}

TEST(TimingStoreTest, ReplacesATimingOfTheSameMicroBatch) {
  TimingStore store(SomeJob());
  ASSERT_TRUE(Add(&store, {Vision(1, 10), Vision(2, 20)}).ok());
  ASSERT_TRUE(Add(&store, {Vision(1, 10), Vision(2, 21), Vision(2, 22)}).ok());
  EXPECT_THAT(Lines(store), ElementsAre("1/0 1:0 10", "2/0 1:0 22"));
}

TEST(TimingStoreTest, KeepsTheLast) {
  TimingStore store(SomeJob());
  constexpr uint64_t kMore = TimingStore::kMaxTimings + 1000;
  for (uint64_t step = 0; step < kMore; ++step) {
    ASSERT_TRUE(Add(&store, {Vision(step, step % 7)}).ok());
    // Repeated timings take no further place, and age.
    if (step < 500) {
      ASSERT_TRUE(Add(&store, {Vision(3, 3)}).ok());
    }
  }
  const auto kept = store.Get(0, v1::MODULE_UNSPECIFIED);
  ASSERT_THAT(kept, SizeIs(TimingStore::kMaxTimings));
  for (uint64_t i = 0; i < kept.size(); ++i) {
    ASSERT_EQ(kept[i].step(), 1000 + i);
    ASSERT_EQ(kept[i].milliseconds(), (1000 + i) % 7);
  }
  // A forgotten timing may come again, and a kept one is still recognised.
  ASSERT_TRUE(Add(&store, {Vision(5, 1), Vision(kMore - 1, 50)}).ok());
  EXPECT_THAT(store.Get(0, v1::MODULE_VISION),
              SizeIs(TimingStore::kMaxTimings));
  EXPECT_THAT(Lines(store, kMore - 1),
              ElementsAre(std::to_string(kMore - 1) + "/0 1:0 50"));
  EXPECT_EQ(store.Get(0, v1::MODULE_VISION)[0].step(), 5u);
  EXPECT_EQ(store.Get(0, v1::MODULE_VISION)[1].step(), 1001u);
}

TEST(TimingStoreTest, RefusesAllTimingsIfOneIsInvalid) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const uint64_t top = ~uint64_t{0};
  const struct {
    v1::StepTiming timing;
    const char* message;
  } cases[] = {
      {Vision(0, -1), "milliseconds is -1"},
      {Vision(0, infinity), "milliseconds is inf"},
      {Vision(0, nan), "milliseconds is nan"},
      {Vision(top / 16, 1), "positions do not fit"},
      // 16 samples over a grid of 2.
      {GetTiming(v1::MODULE_VISION, 1, 9, 8, 1),
       "of vision rank 1 in step 9 micro-batch 8: micro_batch is 8, wanted "
       "less than 8"},
      {GetTiming(v1::MODULE_VISION, 2, 0, 0, 1), "rank"},
      {GetTiming(v1::MODULE_UNSPECIFIED, 0, 0, 0, 1), "module"},
      {v1::StepTiming(), "module"},
  };
  TimingStore store(SomeJob());
  for (const auto& each : cases) {
    const absl::Status status = Add(&store, {Vision(1, 1), each.timing});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("timings[1]"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(each.message));
  }
  EXPECT_FALSE(Add(&store, {}).ok());
  const std::vector<v1::StepTiming> many(TimingStore::kMaxReported,
                                         Vision(2, 2));
  std::vector<v1::StepTiming> too_many = many;
  too_many.push_back(Vision(3, 3));
  EXPECT_FALSE(Add(&store, too_many).ok());
  EXPECT_THAT(Lines(store), IsEmpty());
  EXPECT_TRUE(Add(&store, many).ok());
  EXPECT_THAT(Lines(store), ElementsAre("2/0 1:0 2"));
  EXPECT_TRUE(Add(&store, {Vision(top / 16 - 1, 0)}).ok());
}

TEST(TimingStoreTest, AcceptsConcurrentReports) {
  TimingStore store(SomeJob());
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
      threads.emplace_back([&store, rank, module] {
        for (uint64_t step = 0; step < 100; ++step) {
          EXPECT_TRUE(Add(&store, {GetTiming(module, rank, step, 0, 1)}).ok());
          EXPECT_GE(store.Get(0, module).size(), step + 1);
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(Lines(store), SizeIs(400));
}

}  // namespace
}  // namespace ballast
