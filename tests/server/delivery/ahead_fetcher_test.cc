#include "server/delivery/ahead_fetcher.h"

#include <algorithm>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

// A schedule of one module with two ranks: sample i of the step at position
// 10 * step + i is read by rank i % 2 and owned by rank 0.
v1::StepSchedule MakeSchedule(uint64_t step) {
  v1::StepSchedule schedule;
  schedule.set_step(step);
  v1::MicroBatchSchedule* batch = schedule.add_micro_batches();
  v1::ModuleSchedule* module = batch->add_modules();
  module->set_module(v1::MODULE_VISION);
  for (uint32_t i : {2u, 0u, 1u, 3u}) {
    batch->add_position(10 * step + i);
    batch->add_source(0);
    batch->add_ordinal(100 * step + i);
    module->add_reader(i % 2);
    module->add_owner(0);
  }
  return schedule;
}

std::map<v1::Module, ServedModule> Served(std::set<uint32_t> ranks,
                                          v1::Delivery mode) {
  std::map<v1::Module, ServedModule> served;
  served[v1::MODULE_VISION] = {std::move(ranks), DeliveryRule(mode)};
  return served;
}

std::vector<uint64_t> Ordinals(const std::vector<AheadSample>& samples) {
  std::vector<uint64_t> ordinals;
  for (const AheadSample& sample : samples) ordinals.push_back(sample.ordinal);
  return ordinals;
}

TEST(SamplesToReadTest, TakesWhatTheServersRanksPullInOrder) {
  const v1::StepSchedule schedule = MakeSchedule(3);
  EXPECT_THAT(Ordinals(SamplesToRead(schedule, Served({1}, v1::DELIVERY_OFF))),
              ElementsAre(301, 303));
  EXPECT_THAT(
      Ordinals(SamplesToRead(schedule, Served({0}, v1::DELIVERY_DIRECT))),
      ElementsAre(300, 301, 302, 303));
  EXPECT_THAT(
      Ordinals(SamplesToRead(schedule, Served({1}, v1::DELIVERY_DIRECT))),
      ElementsAre());
  EXPECT_THAT(
      Ordinals(SamplesToRead(schedule, Served({0, 1}, v1::DELIVERY_EXCHANGE))),
      ElementsAre(300, 301, 302, 303));
  std::map<v1::Module, ServedModule> other;
  other[v1::MODULE_LANGUAGE] = {{0, 1}, DeliveryRule(v1::DELIVERY_OFF)};
  EXPECT_TRUE(SamplesToRead(schedule, other).empty());
}

class StepsOnly : public Scheduler {
 public:
  absl::StatusOr<v1::StepSchedule> Schedule(uint64_t step) const override {
    if (step >= 10) return absl::OutOfRangeError("the data end");
    return MakeSchedule(step);
  }
  const v1::Fingerprint& fingerprint() const override { return fingerprint_; }
  const v1::Job& job() const override { return job_; }

 private:
  v1::Fingerprint fingerprint_;
  v1::Job job_;
};

// Each sample has 100 bytes in a store.
class StoreSource : public SampleSource {
 public:
  const SourceIndex& index() const override { abort(); }
  absl::StatusOr<FaultOr<RawSample>> Read(uint64_t, ReadParts) const override {
    return absl::UnimplementedError("not read");
  }
  SampleLocation Locate(uint64_t) const override { return {"docs.tar", 0}; }
  bool InStore() const override { return true; }
  bool IsHere(uint64_t ordinal) const override {
    return ordinal >= here_from && ordinal < here_to;
  }
  absl::StatusOr<uint64_t> FetchAhead(uint64_t ordinal,
                                      const MakeRoom& room) const override {
    if (ordinal == fails) return absl::UnavailableError("the store is down");
    if (!room(100)) return absl::ResourceExhaustedError("no room");
    MutexLock lock(&mutex_);
    fetched_.push_back(ordinal);
    fetched_one_.NotifyAll();
    return 100;
  }

  std::vector<uint64_t> fetched() const {
    MutexLock lock(&mutex_);
    return fetched_;
  }
  void AwaitCount(size_t count) const {
    MutexLock lock(&mutex_);
    while (fetched_.size() < count) fetched_one_.Wait(&mutex_);
  }

  std::atomic<uint64_t> fails{UINT64_MAX};
  uint64_t here_from = 0;
  uint64_t here_to = 0;

 private:
  mutable Mutex mutex_;
  mutable CondVar fetched_one_;
  mutable std::vector<uint64_t> fetched_ ABSL_GUARDED_BY(mutex_);
};

class AheadFetcherTest : public ::testing::Test {
 protected:
  AheadFetcher::Settings Settings(uint64_t memory, uint32_t ahead_steps) {
    AheadFetcher::Settings settings;
    settings.scheduler = &scheduler_;
    settings.sources = {&source_};
    settings.served = Served({0, 1}, v1::DELIVERY_OFF);
    settings.memory = memory;
    settings.ahead_steps = ahead_steps;
    settings.threads = 1;
    return settings;
  }

  StepsOnly scheduler_;
  StoreSource source_;
};

TEST_F(AheadFetcherTest, FetchesStepsInTheirOrder) {
  AheadFetcher ahead(Settings(1 << 20, 4));
  std::vector<std::pair<uint64_t, uint64_t>> progress;
  ASSERT_TRUE(ahead
                  .Fetch(2, 4,
                         [&](uint64_t steps, uint64_t bytes) {
                           progress.emplace_back(steps, bytes);
                         })
                  .ok());
  EXPECT_THAT(source_.fetched(),
              ElementsAre(200, 201, 202, 203, 300, 301, 302, 303));
  EXPECT_THAT(progress, ElementsAre(std::pair(uint64_t{1}, uint64_t{400}),
                                    std::pair(uint64_t{2}, uint64_t{800})));
  EXPECT_EQ(ahead.fetched_to_step(), 4u);
}

TEST_F(AheadFetcherTest, NamesTheSampleThatFails) {
  source_.fails = 201;
  AheadFetcher ahead(Settings(1 << 20, 4));
  const absl::Status status = ahead.Fetch(2, 4, [](uint64_t, uint64_t) {});
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), "docs.tar: sample 201: the store is down");
}

TEST_F(AheadFetcherTest, FetchesOnlyWhatIsNotHere) {
  source_.here_from = 201;
  source_.here_to = 303;
  AheadFetcher ahead(Settings(1 << 20, 4));
  uint64_t fetched = 0;
  ASSERT_TRUE(
      ahead.Fetch(2, 4, [&](uint64_t, uint64_t bytes) { fetched = bytes; })
          .ok());
  EXPECT_THAT(source_.fetched(), ElementsAre(200, 303));
  EXPECT_EQ(fetched, 200u);
  EXPECT_EQ(ahead.fetched_to_step(), 4u);
}

TEST_F(AheadFetcherTest, StartsThreadsOnlyForWhatIsNotHereAndKeepsThem) {
  source_.here_to = 500;  // the first five steps
  AheadFetcher::Settings settings = Settings(1 << 20, 4);
  settings.threads = 8;
  AheadFetcher ahead(settings);
  const auto no_progress = [](uint64_t, uint64_t) {};
  ASSERT_TRUE(ahead.Fetch(0, 5, no_progress).ok());
  EXPECT_TRUE(source_.fetched().empty());
  EXPECT_EQ(ahead.threads_started(), 0u);
  for (uint64_t step = 5; step < 10; ++step) {
    ASSERT_TRUE(ahead.Fetch(step, step + 1, no_progress).ok());
    // A step has four samples; the caller fetches, too.
    EXPECT_EQ(ahead.threads_started(), 3u);
  }
  EXPECT_EQ(source_.fetched().size(), 20u);
}

TEST_F(AheadFetcherTest, FollowsTrainingWithinItsStepsAndMemory) {
  std::atomic<uint64_t> step{0};
  {
    // Room for six samples.
    AheadFetcher ahead(Settings(600, 3));
    ASSERT_TRUE(
        ahead.Start([&]() -> std::optional<uint64_t> { return step.load(); })
            .ok());
    source_.AwaitCount(6);
    EXPECT_THAT(source_.fetched(), ElementsAre(100, 101, 102, 103, 200, 201));
    EXPECT_EQ(ahead.fetched_to_step(), 2u);
    step = 1;  // frees the memory of step 1
    source_.AwaitCount(10);
  }
  const std::vector<uint64_t> fetched = source_.fetched();
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::count(fetched.begin() + 6, fetched.end(), 200 + i), 1) << i;
  }
}

TEST_F(AheadFetcherTest, WaitsWhileNobodyTrains) {
  AheadFetcher ahead(Settings(1 << 20, 3));
  std::atomic<int> asked{0};
  ASSERT_TRUE(ahead
                  .Start([&]() -> std::optional<uint64_t> {
                    ++asked;
                    return std::nullopt;
                  })
                  .ok());
  while (asked < 2) std::this_thread::yield();
  EXPECT_TRUE(source_.fetched().empty());
}

}  // namespace
}  // namespace ballast
