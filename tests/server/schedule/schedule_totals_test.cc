// Compares totals with sums over the samples, for random configurations: a
// trainer scales its loss by them without asking anyone.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

constexpr int kRounds = 200;
constexpr uint32_t kMaxTextTokens = uint32_t{1} << 24;

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  // A number in [least, most].
  uint32_t Int(uint32_t least, uint32_t most) {
    return least + engine_() % (most - least + 1);
  }
  bool Coin() { return Int(0, 1) == 1; }

 private:
  std::mt19937 engine_;
};

// Samples with up to three images and text of any order of magnitude, so that
// the squares of some samples alone exceed 2^32.
std::vector<FakeSourceIndex::Sample> RandomSamples(Random* random) {
  std::vector<FakeSourceIndex::Sample> samples(random->Int(1, 60));
  for (FakeSourceIndex::Sample& sample : samples) {
    sample.text_tokens = random->Int(1, kMaxTextTokens >> random->Int(0, 20));
    sample.label_tokens = random->Int(0, sample.text_tokens);
    sample.images.resize(random->Int(0, 3));
    for (ImageSize& image : sample.images) {
      image = {random->Int(28, 900), random->Int(28, 900)};
    }
  }
  return samples;
}

v1::Config RandomConfig(Random* random) {
  const uint32_t vision = random->Int(1, 4);
  const uint32_t language = random->Int(1, 4);
  const uint32_t micro = std::lcm(vision, language) * random->Int(1, 4);
  v1::Config config = JobConfig(
      vision, language, micro * random->Int(1, 4), micro,
      random->Int(0, 3) == 0 ? v1::DELIVERY_OFF : v1::DELIVERY_EXCHANGE);
  v1::Balance& balance = *config.mutable_balance();
  if (random->Coin()) balance.set_algorithm(v1::Balance::ALGORITHM_LPT);
  if (random->Coin()) balance.set_order(v1::Balance::ORDER_PIPELINE);
  balance.set_equal_count(random->Coin());
  balance.set_align_images(random->Coin());
  balance.mutable_cost()->mutable_language()->set_linear(random->Int(0, 2));
  if (random->Coin()) {
    balance.set_scope(v1::Balance::SCOPE_WINDOW);
    balance.set_window(random->Int(1, 3));
  }
  if (random->Coin() && balance.delivery() != v1::DELIVERY_OFF) {
    config.mutable_packing()->set_mode(v1::Packing::MODE_SCHEDULED);
    config.mutable_packing()->set_max_tokens_per_rank(2 * kMaxTextTokens);
    config.mutable_packing()->set_virtual_pipeline_group(1);
  }
  return config;
}

struct Sums {
  // Wide enough that no sum wraps, so that a wrapped total differs.
  unsigned __int128 tokens = 0, squared = 0, labels = 0, patches = 0,
                    images = 0;

  void Add(const Sums& more) {
    tokens += more.tokens;
    squared += more.squared;
    labels += more.labels;
    patches += more.patches;
    images += more.images;
  }
};

// Sums from the index, except for the sizes of the images after resizing.
Sums SumsOf(const std::vector<FakeSourceIndex::Sample>& samples,
            const v1::MicroBatchSchedule& micro_batch) {
  Sums sums;
  int image = 0;
  for (const uint64_t ordinal : micro_batch.ordinal()) {
    const FakeSourceIndex::Sample& sample = samples[ordinal];
    uint64_t patches = 0;
    for (size_t k = 0; k < sample.images.size(); ++k, ++image) {
      patches +=
          uint64_t{micro_batch.grid_h(image)} * micro_batch.grid_w(image);
    }
    // Four patches merge into one token.
    const unsigned __int128 tokens = sample.text_tokens + patches / 4;
    sums.Add({tokens, tokens * tokens, sample.label_tokens, patches,
              sample.images.size()});
  }
  return sums;
}

void ExpectEqual(const v1::Totals& totals, const Sums& sums) {
  EXPECT_TRUE(totals.tokens() == sums.tokens);
  EXPECT_TRUE(totals.tokens_squared() == sums.squared);
  EXPECT_TRUE(totals.label_tokens() == sums.labels);
  EXPECT_TRUE(totals.patches() == sums.patches);
  EXPECT_TRUE(totals.images() == sums.images);
}

TEST(ScheduleTotalsTest, AreTheSumsOverTheSamples) {
  uint64_t largest = 0;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    Random random(round);
    const auto samples = RandomSamples(&random);
    const FakeSourceIndex index(samples);
    const v1::Config config = RandomConfig(&random);
    const uint64_t step = random.Int(0, 1000);
    const auto scheduler = Scheduler::Create(config, {&index});
    ASSERT_TRUE(scheduler.ok()) << scheduler.status();
    const auto schedule = (*scheduler)->Schedule(step);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    Sums step_sums;
    std::multiset<uint64_t> positions;
    for (const auto& micro_batch : schedule->micro_batches()) {
      const Sums sums = SumsOf(samples, micro_batch);
      ExpectEqual(micro_batch.totals(), sums);
      step_sums.Add(sums);
      positions.insert(micro_batch.position().begin(),
                       micro_batch.position().end());
    }
    ExpectEqual(schedule->totals(), step_sums);
    largest = std::max(largest, schedule->totals().tokens_squared());
    // Each sample of the step is counted once.
    std::multiset<uint64_t> wanted;
    for (uint64_t i = 0; i < config.batch().global(); ++i) {
      wanted.insert(step * config.batch().global() + i);
    }
    EXPECT_EQ(positions, wanted);
  }
  EXPECT_GT(largest, uint64_t{1} << 50);
}

// The largest possible sample: 2^32 - 1 tokens.
TEST(ScheduleTotalsTest, ASquareOfSixtyFourBitsIsExact) {
  constexpr uint64_t kTokens = 0xffffffff;
  const FakeSourceIndex index(
      {{static_cast<uint32_t>(kTokens), static_cast<uint32_t>(kTokens), {}}});
  const auto scheduler = Scheduler::Create(JobConfig(1, 1, 1, 1), {&index});
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  const auto schedule = (*scheduler)->Schedule(0);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(schedule->totals().tokens(), kTokens);
  EXPECT_EQ(schedule->totals().label_tokens(), kTokens);
  // (2^32 - 1)^2 = 2^64 - 2^33 + 1
  EXPECT_EQ(schedule->totals().tokens_squared(), 0xfffffffe00000001);
}

}  // namespace
}  // namespace ballast
