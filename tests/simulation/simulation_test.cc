#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "tests/simulation/sim_sweep.h"

namespace ballast {
namespace {

// The suite's seeds. `bazel run //tests/simulation:simulate -- --seeds N` runs
// more of them.
TEST(SimulationTest, JobsKeepTheirPromises) {
  SimSweep sweep;
  sweep.seeds = 1000;
  const SimTotals totals = RunSeeds(sweep);
  RecordProperty("totals", Describe(totals));
  EXPECT_TRUE(totals.failed_seeds.empty()) << Describe(totals);
  for (int kind = 0; kind < SimFault::kKindsWithoutChanges; ++kind) {
    EXPECT_GT(totals.faults[kind], 20u)
        << SimFault::Name(static_cast<SimFault::Kind>(kind));
  }
}

// Jobs that are changed while they run: each change holds at all servers, or at
// none. BALLAST_CHANGE_SEEDS=1000 runs more of them.
TEST(SimulationTest, ChangesHoldAtAllServersOrAtNone) {
  SimSweep sweep;
  sweep.draw = DrawChangePlan;
  sweep.seeds = 60;
  if (const char* seeds = std::getenv("BALLAST_CHANGE_SEEDS")) {
    ASSERT_TRUE(absl::SimpleAtoi(seeds, &sweep.seeds)) << seeds;
  }
  const SimTotals totals = RunSeeds(sweep);
  RecordProperty("totals", Describe(totals));
  std::printf("%s", Describe(totals).c_str());
  EXPECT_TRUE(totals.failed_seeds.empty()) << Describe(totals);
  // The faults leave room for both.
  EXPECT_GT(totals.changes, sweep.seeds / 4);
  EXPECT_LT(totals.changes, totals.offers - sweep.seeds / 4);
  for (int kind = SimFault::kKindsWithoutChanges;
       kind <= static_cast<int>(SimFault::Kind::kRefusedStep); ++kind) {
    EXPECT_GT(totals.faults[kind], 2u)
        << SimFault::Name(static_cast<SimFault::Kind>(kind));
  }
}

TEST(SimulationTest, ASeedReplaysAlike) {
  SimSweep sweep;
  sweep.seeds = 20;
  const SimTotals first = RunSeeds(sweep);
  const SimTotals second = RunSeeds(sweep);
  EXPECT_EQ(first.trace, second.trace);
  EXPECT_EQ(first.switches, second.switches);
  sweep.first = 20;
  EXPECT_NE(RunSeeds(sweep).trace, first.trace);
}

// The seeds that it takes until the checker finds a planted defect; 0: never.
uint64_t SeedsUntilFound(const SimDefects& defects, uint64_t most = 500,
                         SimPlan (*draw)(uint64_t) = DrawPlan) {
  SimSweep sweep;
  sweep.seeds = most;
  sweep.draw = draw;
  sweep.defects = defects;
  sweep.stop_at_failure = true;
  const SimTotals totals = RunSeeds(sweep);
  return totals.failed_seeds.empty() ? 0 : totals.seeds;
}

TEST(PlantedDefectsTest, ALostBatchIsFound) {
  EXPECT_GT(SeedsUntilFound({.lose_a_batch = true}), 0u);
}

TEST(PlantedDefectsTest, ARepeatedBatchIsFound) {
  EXPECT_GT(SeedsUntilFound({.train_twice = true}), 0u);
}

TEST(PlantedDefectsTest, TransientFaultsAsPlaceholdersAreFound) {
  EXPECT_GT(SeedsUntilFound({.errors_become_placeholders = true}), 0u);
}

TEST(PlantedDefectsTest, OtherDataUnderTheSameFingerprintAreFound) {
  EXPECT_GT(SeedsUntilFound({.other_data_unnoticed = true}), 0u);
}

TEST(PlantedDefectsTest, StepsGivenOutBeforeTheDecisionAreFound) {
  EXPECT_GT(SeedsUntilFound({.serve_held_steps = true}, 500, DrawChangePlan),
            0u);
}

// Servers of several nodes that only topology.meeting brings together, and
// ranks that meet no other: no rank trains by another configuration.
TEST(SimulationTest, ServersThatAreApartServeOneConfiguration) {
  SimSweep sweep;
  sweep.draw = DrawApartPlan;
  sweep.seeds = 60;
  const SimTotals totals = RunSeeds(sweep);
  RecordProperty("totals", Describe(totals));
  EXPECT_TRUE(totals.failed_seeds.empty()) << Describe(totals);
  EXPECT_GT(totals.faults[static_cast<int>(SimFault::Kind::kOtherData)],
            sweep.seeds / 2);
}

// Blocks of one stream from several servers, which are killed, join and leave:
// every batch is the one of a run without faults. BALLAST_SPREAD_SEEDS=1000
// runs more of them.
TEST(SimulationTest, SpreadJobsKeepTheirPromises) {
  SimSweep sweep;
  sweep.draw = DrawSpreadPlan;
  sweep.seeds = 110;
  if (const char* seeds = std::getenv("BALLAST_SPREAD_SEEDS")) {
    ASSERT_TRUE(absl::SimpleAtoi(seeds, &sweep.seeds)) << seeds;
  }
  const SimTotals totals = RunSeeds(sweep);
  RecordProperty("totals", Describe(totals));
  std::printf("%s", Describe(totals).c_str());
  EXPECT_TRUE(totals.failed_seeds.empty()) << Describe(totals);
  const auto count = [&](SimFault::Kind kind) {
    return totals.faults[static_cast<int>(kind)];
  };
  EXPECT_GE(count(SimFault::Kind::kKillServer), sweep.seeds * 4 / 3);
  EXPECT_GE(count(SimFault::Kind::kJoin), sweep.seeds / 3);
}

TEST(PlantedDefectsTest, OtherDataUnderTheSameFingerprintAreFoundInAShare) {
  EXPECT_GT(
      SeedsUntilFound({.other_data_unnoticed = true}, 500, DrawSpreadPlan), 0u);
}

TEST(PlantedDefectsTest, ServersThatAreNotComparedAreFound) {
  EXPECT_GT(SeedsUntilFound({.compare_no_servers = true}, 100, DrawApartPlan),
            0u);
}

TEST(PlantedDefectsTest, RevisionsThatAreNotWrittenAreFound) {
  EXPECT_GT(SeedsUntilFound({.forget_revisions = true}, 500, DrawChangePlan),
            0u);
}

TEST(PlantedDefectsTest, AServerThatIsNeverGivenUpIsFound) {
  SimPlan plan = DrawPlan(0);
  plan.shared_memory = false;
  plan.one_server_is_well = true;
  SimFault stall;
  stall.kind = SimFault::Kind::kDiskStall;
  stall.lasts = absl::Hours(10);
  plan.faults = {stall};
  SimulationOptions options;
  EXPECT_TRUE(Simulate(plan, options).violations.empty());
  options.defects.never_give_up_a_server = true;
  EXPECT_FALSE(Simulate(plan, options).violations.empty());
}

// A rank is frozen until its server has given its blocks' memory to others.
void FreezeARankThatHoldsBlocks(SimPlan* plan) {
  plan->job.vision_dp = plan->job.language_dp = 2;
  plan->job.delivery = v1::DELIVERY_DIRECT;
  plan->steps = 12;
  plan->shared_memory = true;
  plan->client_memory = 8 << 10;
  plan->server_memory = 32 << 10;
  plan->most_compute = absl::Seconds(20);
  SimFault freeze;
  freeze.kind = SimFault::Kind::kFreezeRank;
  freeze.at = absl::Seconds(5);
  freeze.lasts = absl::Minutes(3);
  plan->faults = {freeze};
}

TEST(PlantedDefectsTest, BlocksThatAreOverwrittenUnnoticedAreFound) {
  SimSweep sweep;
  sweep.seeds = 20;
  sweep.change = FreezeARankThatHoldsBlocks;
  const SimTotals well = RunSeeds(sweep);
  EXPECT_TRUE(well.failed_seeds.empty()) << Describe(well);
  sweep.defects.skip_generation_check = true;
  sweep.stop_at_failure = true;
  EXPECT_FALSE(RunSeeds(sweep).failed_seeds.empty());
}

TEST(PlantedDefectsTest, ARankWithoutASecondServerIsFound) {
  EXPECT_GT(SeedsUntilFound({.no_second_server = true}), 0u);
}

}  // namespace
}  // namespace ballast
