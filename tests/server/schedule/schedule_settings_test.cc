// Settings that determine which samples are balanced together, and in which
// order.

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/schedule/schedule_table.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"
#include "tests/server/schedule/formula_scheduler.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// Samples move between the micro-batches of a window, never out of it. Each is
// read where its position says.
TEST(ScheduleSettingsTest, AWindowBalancesItsMicroBatchesTogether) {
  auto config = JobConfig(2, 4, 80, 16);
  const auto natural = ScheduleOf(config, 1);
  config.mutable_balance()->set_scope(v1::Balance::SCOPE_WINDOW);
  config.mutable_balance()->set_window(2);
  const auto schedule = ScheduleOf(config, 1);
  ASSERT_EQ(schedule.micro_batches_size(), 5);
  // The load of the heaviest rank of each micro-batch, summed: the time of the
  // step.
  double natural_time = 0, time = 0;
  for (int first = 0; first < 5; first += 2) {
    std::set<uint64_t> wanted, found;
    for (int m = first; m < std::min(first + 2, 5); ++m) {
      const auto& micro_batch = schedule.micro_batches(m);
      found.insert(micro_batch.position().begin(),
                   micro_batch.position().end());
      wanted.insert(natural.micro_batches(m).position().begin(),
                    natural.micro_batches(m).position().end());
      for (const auto& module : micro_batch.modules()) {
        const uint32_t each = 16 / module.load_after_size();
        for (int i = 0; i < micro_batch.position_size(); ++i) {
          EXPECT_EQ(module.reader(i), micro_batch.position(i) % 16 / each);
        }
      }
      const auto& after = micro_batch.modules(0).load_after();
      const auto& natural_after =
          natural.micro_batches(m).modules(0).load_after();
      time += *std::max_element(after.begin(), after.end());
      natural_time +=
          *std::max_element(natural_after.begin(), natural_after.end());
    }
    EXPECT_EQ(found, wanted);
  }
  EXPECT_LT(time, natural_time);
}

// Every pack fits, and the number of micro-batches is equal on all ranks for
// any lengths.
TEST(ScheduleSettingsTest, ScheduledPackingFillsPacks) {
  for (const auto algorithm :
       {v1::Balance::ALGORITHM_LPT, v1::Balance::ALGORITHM_REFINED}) {
    auto config = JobConfig(4, 2, 64, 16);
    config.mutable_balance()->set_algorithm(algorithm);
    config.mutable_packing()->set_mode(v1::Packing::MODE_SCHEDULED);
    config.mutable_packing()->set_max_tokens_per_rank(900);
    config.mutable_packing()->set_align(16);
    config.mutable_packing()->set_virtual_pipeline_group(2);
    const auto scheduler = Make(config);
    std::set<int> counts;
    for (uint64_t step = 0; step < 20; ++step) {
      const auto schedule = scheduler->Schedule(step);
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      counts.insert(schedule->micro_batches_size());
      EXPECT_EQ(schedule->micro_batches_size() % 2, 0);
      std::multiset<uint64_t> positions;
      for (const auto& micro_batch : schedule->micro_batches()) {
        const auto& vision = micro_batch.modules(0);
        std::vector<uint64_t> tokens(4, 0);
        for (int i = 0; i < micro_batch.position_size(); ++i) {
          positions.insert(micro_batch.position(i));
          tokens[vision.owner(i)] += (micro_batch.tokens(i) + 15) / 16 * 16;
          EXPECT_EQ(vision.reader(i), micro_batch.position(i) % 16 / 4);
        }
        for (const uint64_t sum : tokens) {
          EXPECT_GT(sum, 0u);
          EXPECT_LE(sum, 900u);
        }
      }
      std::multiset<uint64_t> all;
      for (uint64_t i = 0; i < 64; ++i) all.insert(step * 64 + i);
      EXPECT_EQ(positions, all);
    }
    EXPECT_GT(counts.size(), 1u);  // the number varies
  }
}

// The sum over a step's micro-batches of vision's largest load.
double VisionTime(const v1::StepSchedule& schedule) {
  double time = 0;
  for (const auto& micro_batch : schedule.micro_batches()) {
    const auto& loads = micro_batch.modules(0).load_after();
    time += *std::max_element(loads.begin(), loads.end());
  }
  return time;
}

TEST(ScheduleSettingsTest, ScheduledPacksEvenOutVision) {
  auto config = JobConfig(4, 4, 64, 16);
  config.mutable_balance()->set_algorithm(v1::Balance::ALGORITHM_REFINED);
  config.mutable_packing()->set_mode(v1::Packing::MODE_SCHEDULED);
  config.mutable_packing()->set_max_tokens_per_rank(2000);
  config.mutable_packing()->set_virtual_pipeline_group(1);
  auto evened = config;
  evened.mutable_packing()->set_encoder_slack(0.1);
  const auto by_text = Make(config), by_both = Make(evened);
  double before = 0, after = 0;
  for (uint64_t step = 0; step < 20; ++step) {
    before += VisionTime(*by_text->Schedule(step));
    after += VisionTime(*by_both->Schedule(step));
  }
  EXPECT_LT(after, 0.97 * before);
  EXPECT_NE(by_text->fingerprint().hash(), by_both->fingerprint().hash());
  // Where it changes nothing, the fingerprint does not know it.
  for (v1::Config* each : {&config, &evened}) {
    each->mutable_balance()->set_algorithm(v1::Balance::ALGORITHM_LPT);
  }
  EXPECT_EQ(Make(config)->fingerprint().hash(),
            Make(evened)->fingerprint().hash());
}

// Each sample is trained on once, by ranks of which each has one pack, and a
// long one by several.
TEST(ScheduleSettingsTest, DynamicCpLetsRanksShareAPack) {
  auto config = JobConfig(0, 8, 64, 16);
  config.mutable_packing()->set_mode(v1::Packing::MODE_SCHEDULED);
  config.mutable_packing()->set_max_tokens_per_rank(300);
  config.mutable_packing()->set_virtual_pipeline_group(1);
  auto shared = config;
  shared.mutable_packing()->set_dynamic_cp(8);
  EXPECT_EQ(Make(config)->job().dynamic_cp(), 0u);
  const auto scheduler = Make(shared);
  EXPECT_EQ(scheduler->job().dynamic_cp(), 8u);
  EXPECT_EQ(scheduler->job().modules(0).align(), 16u);
  EXPECT_NE(Make(config)->fingerprint().hash(),
            scheduler->fingerprint().hash());
  std::set<uint32_t> sizes;
  for (uint64_t step = 0; step < 20; ++step) {
    const auto schedule = scheduler->Schedule(step);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    std::multiset<uint64_t> positions;
    for (const auto& micro_batch : schedule->micro_batches()) {
      positions.insert(micro_batch.position().begin(),
                       micro_batch.position().end());
      const v1::ModuleSchedule& language = micro_batch.modules(0);
      std::vector<double> load(8), tokens(8);
      for (int i = 0; i < micro_batch.position_size(); ++i) {
        const uint32_t ranks = PackRanks(language, i);
        sizes.insert(ranks);
        for (uint32_t r = 0; r < 8; ++r) {
          if (!TrainsOn(language, i, r)) continue;
          load[r] += language.cost(i) / ranks;
          tokens[r] += (micro_batch.tokens(i) + 15) / 16 * 16. / ranks;
        }
      }
      for (int r = 0; r < 8; ++r) {
        EXPECT_DOUBLE_EQ(language.load_after(r), load[r]);
        EXPECT_GT(tokens[r], 0);
        EXPECT_LE(tokens[r], 300);
      }
    }
    EXPECT_TRUE(CheckColumns(*schedule).ok()) << CheckColumns(*schedule);
    ASSERT_EQ(positions.size(), 64u);
    EXPECT_EQ(*positions.begin(), step * 64);
    EXPECT_EQ(*positions.rbegin(), step * 64 + 63);
  }
  EXPECT_GT(sizes.size(), 1u);
  EXPECT_GT(*sizes.rbegin(), 1u);
}

TEST(ScheduleSettingsTest, NamesASampleThatFitsNoPack) {
  auto config = JobConfig(2, 2, 64, 16);
  config.mutable_packing()->set_mode(v1::Packing::MODE_SCHEDULED);
  config.mutable_packing()->set_max_tokens_per_rank(50);
  config.mutable_packing()->set_virtual_pipeline_group(1);
  EXPECT_THAT(Make(config)->Schedule(0).status().message(),
              HasSubstr("packing.max_tokens_per_rank * cp"));
}

TEST(ScheduleSettingsTest, SkipBelowLeavesABalancedMicroBatchAlone) {
  auto config = JobConfig(2, 2, 16, 8);
  config.mutable_balance()->set_skip_below(1000);
  config.mutable_balance()->set_align_images(false);
  const auto schedule = ScheduleOf(config, 0);
  for (const auto& micro_batch : schedule.micro_batches()) {
    EXPECT_THAT(micro_batch.modules(0).owner(),
                ::testing::ElementsAreArray(micro_batch.modules(0).reader()));
  }
}

// The micro-batches of a step change places as wholes; slots give the new
// places.
TEST(ScheduleSettingsTest, PipelineOrderKeepsTheStepsSamples) {
  auto config = JobConfig(2, 2, 64, 8);
  (*config.mutable_topology()->mutable_modules())["language"].set_pp(4);
  config.mutable_balance()->mutable_cost()->mutable_language()->set_linear(12);
  const auto natural = ScheduleOf(config, 1);
  config.mutable_balance()->set_order(v1::Balance::ORDER_PIPELINE);
  const auto pipeline = ScheduleOf(config, 1);
  std::map<uint64_t, std::string> by_position;
  for (v1::MicroBatchSchedule micro_batch : natural.micro_batches()) {
    micro_batch.clear_slot();
    by_position[micro_batch.position(0)] = micro_batch.SerializeAsString();
  }
  bool moved = false;
  for (int m = 0; m < pipeline.micro_batches_size(); ++m) {
    v1::MicroBatchSchedule micro_batch = pipeline.micro_batches(m);
    for (const uint32_t slot : micro_batch.slot()) {
      EXPECT_EQ(slot, static_cast<uint32_t>(m));
    }
    micro_batch.clear_slot();
    EXPECT_EQ(by_position[micro_batch.position(0)],
              micro_batch.SerializeAsString());
    moved |= micro_batch.position(0) != natural.micro_batches(m).position(0);
  }
  EXPECT_TRUE(moved);
}

// With `phases`, the sum of both modules' largest loads is never larger. The
// objective decides, not whether the modules share GPUs.
TEST(ScheduleSettingsTest, TheObjectiveDecidesWhatIsBalanced) {
  auto config = JobConfig(4, 4, 64, 64);
  config.mutable_balance()->mutable_cost()->mutable_language()->set_linear(2);
  const auto time = [](const v1::StepSchedule& schedule) {
    double sum = 0;
    for (const auto& module : schedule.micro_batches(0).modules()) {
      sum += *std::max_element(module.load_after().begin(),
                               module.load_after().end());
    }
    return sum;
  };
  double sum_time = 0, phases_time = 0;
  for (uint64_t step = 0; step < 8; ++step) {
    config.mutable_balance()->set_objective(v1::Balance::OBJECTIVE_SUM);
    const v1::StepSchedule sum = ScheduleOf(config, step);
    config.mutable_balance()->set_objective(v1::Balance::OBJECTIVE_PHASES);
    v1::StepSchedule phases = ScheduleOf(config, step);
    EXPECT_LE(time(phases), time(sum)) << step;
    sum_time += time(sum);
    phases_time += time(phases);
    config.mutable_topology()->set_colocated(false);
    v1::StepSchedule apart = ScheduleOf(config, step);
    config.mutable_topology()->set_colocated(true);
    EXPECT_NE(apart.fingerprint(), phases.fingerprint());
    apart.clear_fingerprint();
    phases.clear_fingerprint();
    EXPECT_EQ(apart.SerializeAsString(), phases.SerializeAsString());
  }
  EXPECT_LT(phases_time, sum_time);
}

}  // namespace
}  // namespace ballast
