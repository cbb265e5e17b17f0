#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "proto/block/block_plan.h"
#include "server/schedule/scheduler.h"
#include "server/schedule/step_plan.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// One micro-batch of four samples of 2, 0, 1 and 1 images for two ranks.
v1::StepSchedule SmallStep() {
  v1::StepSchedule schedule;
  schedule.set_step(7);
  v1::MicroBatchSchedule& columns = *schedule.add_micro_batches();
  for (const uint32_t images : {2, 0, 1, 1}) {
    columns.add_images(images);
    columns.add_tokens(10 + images);
  }
  // Patches of 4 pixels: 96, 192, 384 and 768 bytes, in multiples of 256.
  for (const uint32_t width : {2, 4, 8, 16}) {
    columns.add_grid_h(1);
    columns.add_grid_w(width);
  }
  v1::ModuleSchedule& vision = *columns.add_modules();
  vision.set_module(v1::MODULE_VISION);
  for (const int reader : {0, 0, 1, 1}) vision.add_reader(reader);
  for (const int owner : {0, 1, 0, 1}) vision.add_owner(owner);
  for (const double load : {6.0, 24.0}) vision.add_load_before(load);
  for (const double load : {14.0, 16.0}) vision.add_load_after(load);
  return schedule;
}

BlockGeometry Geometry() {
  BlockGeometry geometry;
  geometry.patch = 4;
  return geometry;
}

TEST(StepBalanceTest, CountsLoadsAndMovesByHand) {
  const v1::StepBalance balance =
      GetBalance(SmallStep(), {{v1::MODULE_VISION, {0, 0}}}, Geometry());
  EXPECT_EQ(balance.step(), 7u);
  EXPECT_EQ(balance.micro_batches(), 1u);
  ASSERT_EQ(balance.modules_size(), 1);
  const v1::ModuleBalance& vision = balance.modules(0);
  EXPECT_DOUBLE_EQ(vision.spread_before(), 24.0 / 15);
  EXPECT_DOUBLE_EQ(vision.spread_after(), 16.0 / 15);
  EXPECT_THAT(vision.load_before(), ElementsAre(6, 24));
  EXPECT_THAT(vision.load_after(), ElementsAre(14, 16));
  EXPECT_EQ(vision.samples(), 4u);
  EXPECT_EQ(vision.bytes(), 256u + 256 + 512 + 768);
  // Sample 1, without images, goes to rank 1, and sample 2 to rank 0.
  EXPECT_EQ(vision.within_servers().samples(), 2u);
  EXPECT_EQ(vision.within_servers().bytes(), 512u);
  EXPECT_EQ(vision.between_servers().samples(), 0u);
  EXPECT_THAT(vision.samples_out(), ElementsAre(1, 1));
  EXPECT_THAT(vision.samples_in(), ElementsAre(1, 1));
  EXPECT_THAT(vision.bytes_out(), ElementsAre(0, 512));
  EXPECT_THAT(vision.bytes_in(), ElementsAre(512, 0));
}

TEST(StepBalanceTest, MovesBetweenServersAreCountedSeparately) {
  const v1::StepBalance balance =
      GetBalance(SmallStep(), {{v1::MODULE_VISION, {0, 1}}}, Geometry());
  EXPECT_EQ(balance.modules(0).within_servers().samples(), 0u);
  EXPECT_EQ(balance.modules(0).between_servers().samples(), 2u);
  EXPECT_EQ(balance.modules(0).between_servers().bytes(), 512u);
}

// Micro-batches with different heavy ranks do not compensate for each other:
// each waits for its own.
TEST(StepBalanceTest, SpreadIsTakenOfEachMicroBatch) {
  v1::StepSchedule schedule = SmallStep();
  v1::MicroBatchSchedule second = schedule.micro_batches(0);
  second.mutable_modules(0)->set_load_before(0, 24);
  second.mutable_modules(0)->set_load_before(1, 6);
  *schedule.add_micro_batches() = second;
  const v1::StepBalance balance = GetBalance(schedule, {}, Geometry());
  EXPECT_THAT(balance.modules(0).load_before(), ElementsAre(30, 30));
  EXPECT_DOUBLE_EQ(balance.modules(0).spread_before(), 48.0 / 30);
}

// Vision's ranks have 6 and 24, and 14 and 16 as trained; language's 20 and 0,
// and 8 and 12.
TEST(StepBalanceTest, AllModulesOfARankAreTakenTogether) {
  v1::StepSchedule schedule = SmallStep();
  EXPECT_EQ(GetBalance(schedule, {}, Geometry()).spread_before(), 0);
  v1::ModuleSchedule language = schedule.micro_batches(0).modules(0);
  language.set_module(v1::MODULE_LANGUAGE);
  language.clear_load_before();
  language.clear_load_after();
  for (const double load : {20, 0}) language.add_load_before(load);
  for (const double load : {8, 12}) language.add_load_after(load);
  *schedule.mutable_micro_batches(0)->add_modules() = language;
  // The ranks of the second micro-batch have each other's loads.
  v1::MicroBatchSchedule second = schedule.micro_batches(0);
  for (v1::ModuleSchedule& module : *second.mutable_modules()) {
    module.mutable_load_before()->SwapElements(0, 1);
    module.mutable_load_after()->SwapElements(0, 1);
  }
  *schedule.add_micro_batches() = second;
  const v1::StepBalance balance = GetBalance(schedule, {}, Geometry());
  EXPECT_DOUBLE_EQ(balance.spread_before(), 26.0 / 25);
  EXPECT_DOUBLE_EQ(balance.spread_after(), 28.0 / 25);
  // Modules that differ in ranks.
  for (v1::MicroBatchSchedule& columns : *schedule.mutable_micro_batches()) {
    columns.mutable_modules(1)->add_load_after(0);
  }
  EXPECT_EQ(GetBalance(schedule, {}, Geometry()).spread_after(), 0);
}

TEST(StepBalanceTest, AModuleWithoutLoadHasNoSpread) {
  v1::StepSchedule schedule = SmallStep();
  for (int r = 0; r < 2; ++r) {
    schedule.mutable_micro_batches(0)->mutable_modules(0)->set_load_after(r, 0);
  }
  EXPECT_EQ(GetBalance(schedule, {}, Geometry()).modules(0).spread_after(), 0);
}

// For both modules, the bytes equal those of the blocks.
TEST(StepBalanceTest, BytesEqualTheBlockPlans) {
  SyntheticJob job;
  job.vision_dp = 4;
  job.language_dp = 2;
  const v1::StepSchedule schedule = SyntheticSchedule(job, 3);
  const BlockGeometry geometry = Geometry();
  const v1::StepBalance balance = GetBalance(schedule, {}, geometry);
  ASSERT_EQ(balance.modules_size(), 2);
  for (const v1::ModuleBalance& module : balance.modules()) {
    uint64_t bytes = 0;
    uint64_t samples = 0;
    std::map<uint32_t, uint64_t> out;
    for (int m = 0; m < schedule.micro_batches_size(); ++m) {
      for (int r = 0; r < module.load_after_size(); ++r) {
        v1::Role role;
        role.set_module(module.module());
        role.set_dp_rank(r);
        const auto plan =
            PlanBlock(schedule, m, role, v1::DELIVERY_EXCHANGE, geometry);
        ASSERT_TRUE(plan.ok()) << plan.status();
        for (const PlannedSample& sample : plan->samples) {
          ++samples;
          bytes += sample.record.payload_bytes;
          if (sample.owner != static_cast<uint32_t>(r)) {
            out[r] += sample.record.payload_bytes;
          }
        }
      }
    }
    EXPECT_EQ(module.bytes(), bytes);
    EXPECT_EQ(module.samples(), samples);
    for (int r = 0; r < module.bytes_out_size(); ++r) {
      EXPECT_EQ(module.bytes_out(r), out[r]) << r;
    }
  }
}

TEST(StepBalanceTest, DropRanksKeepsTheSums) {
  v1::StepBalance balance = GetBalance(SmallStep(), {}, Geometry());
  DropRanks(&balance);
  EXPECT_THAT(balance.modules(0).load_before(), IsEmpty());
  EXPECT_THAT(balance.modules(0).bytes_in(), IsEmpty());
  EXPECT_EQ(balance.modules(0).samples(), 4u);
}

TEST(StepBalanceTest, ServersFollowTheTopology) {
  v1::Config config = JobConfig(4, 2, 16, 8);
  config.mutable_topology()->clear_servers();
  for (const char* ranks : {"0,3", "1-2"}) {
    v1::Topology::Server& server = *config.mutable_topology()->add_servers();
    (*server.mutable_ranks())["vision"] = ranks;
    (*server.mutable_ranks())["language"] = ranks[0] == '0' ? "0" : "1";
  }
  const absl::StatusOr<ServersOfRanks> servers = FindServersOfRanks(config);
  ASSERT_TRUE(servers.ok()) << servers.status();
  EXPECT_THAT(servers->at(v1::MODULE_VISION), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(servers->at(v1::MODULE_LANGUAGE), ElementsAre(0, 1));
}

// Compares totals with sums over the samples, for random configurations: a
// trainer scales its loss by them without asking anyone.

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
