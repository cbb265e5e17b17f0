#include "server/config/batch_sizes.h"

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Runs = std::vector<std::pair<uint64_t, uint32_t>>;  // step, samples

Runs RunsOf(const std::vector<BatchSize>& sizes) {
  Runs runs;
  for (const BatchSize& size : sizes) {
    if (!runs.empty() && runs.back().second == size.samples) continue;
    runs.push_back({size.first_step, size.samples});
  }
  return runs;
}

Runs RunsOf(const v1::Batch& batch) {
  const auto sizes = BatchSizes(batch);
  EXPECT_TRUE(sizes.ok()) << sizes.status();
  return sizes.ok() ? RunsOf(*sizes) : Runs();
}

v1::Batch BatchOf(uint32_t global) {
  v1::Batch batch;
  batch.set_global(global);
  return batch;
}

void SetRampup(uint32_t start, uint32_t increment, uint64_t samples,
               v1::Batch* batch) {
  batch->mutable_rampup()->set_start(start);
  batch->mutable_rampup()->set_increment(increment);
  batch->mutable_rampup()->set_samples(samples);
}

void AddAtStep(uint64_t step, uint32_t global, v1::Batch* batch) {
  auto* change = batch->add_changes();
  change->set_step(step);
  change->set_global(global);
}

void AddAtSamples(uint64_t samples, uint32_t global, v1::Batch* batch) {
  auto* change = batch->add_changes();
  change->set_samples(samples);
  change->set_global(global);
}

TEST(BatchSizesTest, WithoutChangesThereIsOneSize) {
  EXPECT_THAT(RunsOf(BatchOf(8)), ElementsAre(Pair(0, 8)));
}

// What megatron-core computed, step by step.
TEST(BatchSizesTest, RampsUpLikeMegatron) {
  std::ifstream file("tests/server/config/megatron_rampup.json");
  const auto golden = nlohmann::json::parse(file);
  ASSERT_GE(golden["cases"].size(), 50u);
  for (const auto& each : golden["cases"]) {
    v1::Batch batch = BatchOf(each["global"]);
    SetRampup(each["start"], each["increment"], each["samples"], &batch);
    EXPECT_EQ(RunsOf(batch), each["sizes"].get<Runs>()) << each;
  }
}

// Megatron's thresholds: the size of a step is that of the last threshold which
// the samples before it have reached.
TEST(BatchSizesTest, ChangesBySamplesAreThresholds) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    v1::Batch batch = BatchOf(1 + random() % 20);
    std::vector<std::pair<uint64_t, uint32_t>> thresholds = {
        {0, batch.global()}};
    for (int i = random() % 6; i > 0; --i) {
      const uint64_t threshold = thresholds.back().first + 1 + random() % 90;
      const uint32_t global = 1 + random() % 40;
      thresholds.push_back({threshold, global});
      AddAtSamples(threshold, global, &batch);
    }
    Runs wanted;
    uint64_t consumed = 0;
    for (uint64_t step = 0; step < 600; ++step) {
      uint32_t size = 0;
      for (const auto& [threshold, global] : thresholds) {
        if (consumed >= threshold) size = global;
      }
      if (wanted.empty() || wanted.back().second != size) {
        wanted.push_back({step, size});
      }
      consumed += size;
    }
    EXPECT_EQ(RunsOf(batch), wanted) << batch.DebugString();
  }
}

TEST(BatchSizesTest, TheFirstChangeEndsTheRampup) {
  v1::Batch batch = BatchOf(64);
  SetRampup(16, 16, 300, &batch);
  EXPECT_THAT(RunsOf(batch), ElementsAre(Pair(0, 16), Pair(7, 32), Pair(10, 48),
                                         Pair(12, 64)));
  AddAtStep(9, 32, &batch);
  EXPECT_THAT(RunsOf(batch), ElementsAre(Pair(0, 16), Pair(7, 32)));
  AddAtStep(1000, 128, &batch);
  EXPECT_THAT(RunsOf(batch),
              ElementsAre(Pair(0, 16), Pair(7, 32), Pair(1000, 128)));
}

TEST(BatchSizesTest, SamplesBeforeAddsUp) {
  v1::Batch batch = BatchOf(64);
  SetRampup(16, 16, 300, &batch);
  AddAtStep(20, 8, &batch);
  AddAtSamples(1000, 24, &batch);
  const auto sizes = *BatchSizes(batch);
  uint64_t samples = 0;
  for (uint64_t step = 0; step < 200; ++step) {
    EXPECT_EQ(SamplesBefore(sizes, step), samples) << step;
    samples += SizeAt(sizes, step).samples;
  }
}

TEST(BatchSizesTest, RefusesPointsThatDoNotAscend) {
  v1::Batch steps = BatchOf(8);
  AddAtStep(10, 16, &steps);
  AddAtStep(10, 8, &steps);
  EXPECT_THAT(std::string(BatchSizes(steps).status().message()),
              HasSubstr("found step 10; wanted a point after that of the "
                        "preceding entry, step 10"));
  // Step 10 begins after 80 samples.
  for (const uint64_t threshold : {3, 73, 80}) {
    v1::Batch samples = BatchOf(8);
    AddAtStep(10, 16, &samples);
    AddAtSamples(threshold, 8, &samples);
    EXPECT_FALSE(BatchSizes(samples).ok()) << threshold;
  }
  v1::Batch thresholds = BatchOf(8);
  AddAtSamples(50, 16, &thresholds);
  AddAtSamples(50, 8, &thresholds);
  EXPECT_FALSE(BatchSizes(thresholds).ok());
}

TEST(BatchSizesTest, RefusesRampupsWithoutAnEvenGrowth) {
  for (const auto& [start, increment] :
       std::vector<std::pair<uint32_t, uint32_t>>{{8, 1}, {9, 1}, {2, 4}}) {
    v1::Batch batch = BatchOf(8);
    SetRampup(start, increment, 10, &batch);
    EXPECT_FALSE(BatchSizes(batch).ok()) << start << " " << increment;
  }
  v1::Batch many = BatchOf(5000);
  SetRampup(1, 1, 10, &many);
  EXPECT_THAT(std::string(BatchSizes(many).status().message()),
              HasSubstr("into at most 4096 parts"));
}

// Every ramp-up that the rules of the fields allow ends, at the sizes' bounds.
TEST(BatchSizesTest, LargestNumbers) {
  v1::Batch batch = BatchOf(1 << 24);
  SetRampup(1, (1 << 24) - 1, 100'000'000'000'000, &batch);
  const auto sizes = *BatchSizes(batch);
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_EQ(sizes[1].first_step, 100'000'000'000'000u);
}

}  // namespace
}  // namespace ballast
