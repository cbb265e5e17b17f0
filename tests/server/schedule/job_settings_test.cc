#include "server/schedule/job_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// Grid 4, two virtual pipeline groups: packs come in multiples of 8.
v1::Config PackedConfig(uint32_t global) {
  v1::Config config = JobConfig(4, 2, global, 16);
  config.mutable_packing()->set_mode(v1::Packing::MODE_SCHEDULED);
  config.mutable_packing()->set_max_tokens_per_rank(900);
  config.mutable_packing()->set_align(16);
  config.mutable_packing()->set_virtual_pipeline_group(2);
  return config;
}

TEST(PackShapeTest, OtherModesHaveNone) {
  const auto packs = MakePackShape(JobConfig(4, 2, 64, 16), v1::Job());
  ASSERT_TRUE(packs.ok()) << packs.status();
  EXPECT_EQ(*packs, std::nullopt);
}

TEST(PackShapeTest, AContextRankAddsToTheCapacity) {
  v1::Config config = PackedConfig(64);
  (*config.mutable_topology()->mutable_modules())["language"].set_cp(3);
  const auto packs = MakePackShape(config, v1::Job());
  ASSERT_TRUE(packs.ok()) << packs.status();
  ASSERT_TRUE(packs->has_value());
  EXPECT_EQ((*packs)->capacity, 2700u);
  EXPECT_EQ((*packs)->micro_batch_multiple, 2u);
}

TEST(PackShapeTest, NamesTheKeyOfAStepThatLeavesPacksEmpty) {
  const auto global = MakePackShape(PackedConfig(60), v1::Job());
  EXPECT_THAT(global.status().message(), HasSubstr("batch.global is 60"));
  EXPECT_THAT(global.status().message(), HasSubstr("which is 8"));
  v1::Job job;
  v1::StepRange* range = job.add_step_ranges();
  range->set_first_step(7);
  range->set_samples(20);
  const auto ramped = MakePackShape(PackedConfig(64), job);
  EXPECT_THAT(ramped.status().message(),
              HasSubstr("the batch of step 7 (batch.rampup, batch.changes) is "
                        "20"));
}

TEST(PackShapeTest, RefusesDeliveryOffAndAJobWithoutLanguage) {
  v1::Config off = PackedConfig(64);
  off.mutable_balance()->set_delivery(v1::DELIVERY_OFF);
  EXPECT_THAT(MakePackShape(off, v1::Job()).status().message(),
              HasSubstr("balance.delivery `off`"));
  v1::Config vision = PackedConfig(64);
  vision.mutable_topology()->mutable_modules()->erase("language");
  EXPECT_THAT(MakePackShape(vision, v1::Job()).status().message(),
              HasSubstr("topology.modules has no language"));
}

}  // namespace
}  // namespace ballast
