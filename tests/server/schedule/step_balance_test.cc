#include "server/schedule/step_plan.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/block/block_plan.h"
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
      BalanceOf(SmallStep(), {{v1::MODULE_VISION, {0, 0}}}, Geometry());
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
      BalanceOf(SmallStep(), {{v1::MODULE_VISION, {0, 1}}}, Geometry());
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
  const v1::StepBalance balance = BalanceOf(schedule, {}, Geometry());
  EXPECT_THAT(balance.modules(0).load_before(), ElementsAre(30, 30));
  EXPECT_DOUBLE_EQ(balance.modules(0).spread_before(), 48.0 / 30);
}

TEST(StepBalanceTest, AModuleWithoutLoadHasNoSpread) {
  v1::StepSchedule schedule = SmallStep();
  for (int r = 0; r < 2; ++r) {
    schedule.mutable_micro_batches(0)->mutable_modules(0)->set_load_after(r, 0);
  }
  EXPECT_EQ(BalanceOf(schedule, {}, Geometry()).modules(0).spread_after(), 0);
}

// For both modules, the bytes equal those of the blocks.
TEST(StepBalanceTest, BytesEqualTheBlockPlans) {
  SyntheticJob job;
  job.vision_dp = 4;
  job.language_dp = 2;
  const v1::StepSchedule schedule = SyntheticSchedule(job, 3);
  const BlockGeometry geometry = Geometry();
  const v1::StepBalance balance = BalanceOf(schedule, {}, geometry);
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
  v1::StepBalance balance = BalanceOf(SmallStep(), {}, Geometry());
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

}  // namespace
}  // namespace ballast
