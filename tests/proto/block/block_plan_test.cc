#include "proto/block/block_plan.h"

#include <map>
#include <memory>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/align.h"
#include "proto/schedule/module.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr BlockGeometry kGeometry = {.patch = 14, .position_axes = 3};

v1::StepSchedule MakeSchedule(uint32_t vision_dp, uint32_t language_dp) {
  static const FakeSourceIndex* index = new FakeSourceIndex(FormulaSamples(61));
  auto scheduler =
      Scheduler::Create(JobConfig(vision_dp, language_dp, 48, 24), {index});
  return *(*scheduler)->Schedule(2);
}

v1::Role RoleOf(v1::Module module, uint32_t rank) {
  v1::Role role;
  role.set_module(module);
  role.set_dp_rank(rank);
  return role;
}

// Every sample is in exactly one rank's block, for readers and for owners.
TEST(BlockPlanTest, RanksTogetherHoldEverySampleOnce) {
  const v1::StepSchedule schedule = MakeSchedule(2, 3);
  for (const v1::Delivery mode :
       {v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT, v1::DELIVERY_HYBRID}) {
    for (const auto& [module, dp] : std::map<v1::Module, uint32_t>{
             {v1::MODULE_VISION, 2}, {v1::MODULE_LANGUAGE, 3}}) {
      DeliveryRule delivery(mode);
      if (mode == v1::DELIVERY_HYBRID) {
        // The last rank has its own server.
        delivery.server_of_rank.resize(dp, 0);
        delivery.server_of_rank.back() = 1;
      }
      std::multiset<uint64_t> positions;
      for (uint32_t rank = 0; rank < dp; ++rank) {
        const auto plan =
            PlanBlock(schedule, 1, RoleOf(module, rank), delivery, kGeometry);
        ASSERT_TRUE(plan.ok()) << plan.status();
        for (const auto& sample : plan->samples) {
          positions.insert(sample.record.position);
        }
      }
      std::multiset<uint64_t> all;
      for (uint64_t i = 0; i < 24; ++i) all.insert(2 * 48 + 24 + i);
      EXPECT_EQ(positions, all);
    }
  }
}

// Behaves like `direct` within a server, like `exchange` between servers.
TEST(BlockPlanTest, HybridExchangesOnlyBetweenServers) {
  const v1::StepSchedule schedule = MakeSchedule(4, 2);
  DeliveryRule hybrid(v1::DELIVERY_HYBRID);
  hybrid.server_of_rank = {0, 1, 0, 1};
  const v1::ModuleSchedule& vision =
      *FindModule(schedule.micro_batches(0), v1::MODULE_VISION);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    std::set<uint32_t> expected;
    for (int i = 0; i < vision.owner_size(); ++i) {
      const bool crosses = vision.reader(i) % 2 != vision.owner(i) % 2;
      if ((crosses ? vision.reader(i) : vision.owner(i)) == rank) {
        expected.insert(i);
      }
    }
    const auto plan = PlanBlock(schedule, 0, RoleOf(v1::MODULE_VISION, rank),
                                hybrid, kGeometry);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::set<uint32_t> found;
    for (const PlannedSample& sample : plan->samples) {
      found.insert(sample.index);
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(BlockPlanTest, OrdersSamplesByDestination) {
  const v1::StepSchedule schedule = MakeSchedule(4, 2);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const auto plan = PlanBlock(schedule, 0, RoleOf(v1::MODULE_VISION, rank),
                                v1::DELIVERY_EXCHANGE, kGeometry);
    ASSERT_TRUE(plan.ok());
    for (size_t i = 1; i < plan->samples.size(); ++i) {
      const auto& a = plan->samples[i - 1];
      const auto& b = plan->samples[i];
      const auto& place = schedule.micro_batches(0).place();
      EXPECT_TRUE(a.owner < b.owner ||
                  (a.owner == b.owner && place[a.index] < place[b.index]));
    }
  }
}

// Offsets as in docs/block.md.
TEST(BlockPlanTest, OffsetsFollowTheFormula) {
  const v1::StepSchedule schedule = MakeSchedule(2, 2);
  for (const auto module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    const auto plan = PlanBlock(schedule, 0, RoleOf(module, 1),
                                v1::DELIVERY_EXCHANGE, kGeometry);
    ASSERT_TRUE(plan.ok());
    const size_t samples = plan->samples.size(), images = plan->images.size();
    EXPECT_EQ(plan->header.micro_batches, 2u);
    EXPECT_EQ(plan->header.sample_table, 128u);
    EXPECT_EQ(plan->header.image_table, 128 + 64 * samples);
    EXPECT_EQ(plan->header.payload,
              AlignUp(128 + 64 * samples + 48 * images, 256));
    uint64_t offset = plan->header.payload;
    for (const auto& sample : plan->samples) {
      const SampleRecord& record = sample.record;
      EXPECT_EQ(record.payload, offset);
      uint64_t bytes = 0;
      if (module == v1::MODULE_VISION) {
        for (uint32_t k = 0; k < record.num_images; ++k) {
          const ImageRecord& image = plan->images[record.first_image + k];
          EXPECT_EQ(image.data, bytes);
          EXPECT_EQ(image.height, 14 * image.grid_h);
          bytes += AlignUp(3 * 14 * 14 * image.grid_h * image.grid_w, 256);
        }
      } else {
        EXPECT_EQ(record.num_images, 0u);
        // ids, labels and three axes of positions.
        bytes = AlignUp(2 * AlignUp(4 * record.tokens, 16) + 12 * record.tokens,
                        256);
      }
      EXPECT_EQ(record.payload_bytes, bytes);
      offset += bytes;
    }
    EXPECT_EQ(plan->bytes(), offset);
  }
}

TEST(BlockPlanTest, RefusesInvalidArguments) {
  v1::StepSchedule schedule = MakeSchedule(2, 2);
  const auto plan = [&](uint32_t micro_batch, v1::Module module, uint32_t rank,
                        const DeliveryRule& delivery) {
    return std::string(PlanBlock(schedule, micro_batch, RoleOf(module, rank),
                                 delivery, kGeometry)
                           .status()
                           .message());
  };
  EXPECT_THAT(plan(2, v1::MODULE_VISION, 0, v1::DELIVERY_EXCHANGE),
              HasSubstr("has 2 micro-batches; number 2"));
  EXPECT_THAT(plan(0, v1::MODULE_VISION, 2, v1::DELIVERY_EXCHANGE),
              HasSubstr("vision has 2 data-parallel ranks; rank 2"));
  EXPECT_THAT(plan(0, v1::MODULE_UNSPECIFIED, 0, v1::DELIVERY_EXCHANGE),
              HasSubstr("module unspecified is not configured"));
  DeliveryRule hybrid(v1::DELIVERY_HYBRID);
  hybrid.server_of_rank = {0, 0, 1};
  EXPECT_THAT(plan(0, v1::MODULE_VISION, 0, hybrid),
              HasSubstr("vision has 2 data-parallel ranks; the servers of 3"));
  schedule.set_fingerprint("abc");
  EXPECT_THAT(plan(0, v1::MODULE_VISION, 0, v1::DELIVERY_EXCHANGE),
              HasSubstr("\"abc\" is not 32 hexadecimal digits"));
}

}  // namespace
}  // namespace ballast
