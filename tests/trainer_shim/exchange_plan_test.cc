#include "trainer_shim/exchange_plan.h"

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/schedule/schedule_table.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr BlockGeometry kGeometry = {.patch = 4, .position_axes = 3};

// Plans of all ranks of `module`, for micro-batch 1 of step 2.
std::vector<ExchangePlan> PlanAll(const SyntheticJob& job, v1::Module module) {
  const v1::StepSchedule schedule = SyntheticSchedule(job, 2);
  EXPECT_TRUE(CheckColumns(schedule).ok()) << CheckColumns(schedule);
  const uint32_t dp =
      module == v1::MODULE_VISION ? job.vision_dp : job.language_dp;
  std::vector<ExchangePlan> plans;
  for (uint32_t rank = 0; rank < dp; ++rank) {
    auto plan =
        PlanExchange(schedule, 1, RoleOf(module, rank),
                     *GetRule(SyntheticJobMessage(job), module), kGeometry);
    EXPECT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(plan->Validate().ok()) << plan->Validate();
    plans.push_back(*std::move(plan));
  }
  return plans;
}

// Positions that the ranks own, in rank order.
std::vector<uint64_t> OwnedPositions(const std::vector<ExchangePlan>& plans) {
  std::vector<uint64_t> positions;
  for (const ExchangePlan& plan : plans) {
    for (const OwnedSample& sample : plan.owned) {
      positions.push_back(sample.expected.position);
    }
  }
  return positions;
}

class ExchangePlanTest
    : public ::testing::TestWithParam<std::tuple<uint32_t, uint32_t, bool>> {
 protected:
  SyntheticJob Job(v1::Delivery delivery) const {
    SyntheticJob job;
    std::tie(job.vision_dp, job.language_dp, job.uneven) = GetParam();
    job.delivery = delivery;
    return job;
  }
};

TEST_P(ExchangePlanTest, RanksOwnAllSamplesInPlaceOrderForEveryDelivery) {
  for (const v1::Delivery delivery :
       {v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT, v1::DELIVERY_HYBRID,
        v1::DELIVERY_OFF}) {
    const SyntheticJob job = Job(delivery);
    const auto columns = SyntheticSchedule(job, 2).micro_batches(1);
    // Places are a permutation, so this holds every position exactly once.
    std::vector<uint64_t> wanted(columns.place_size());
    for (int i = 0; i < columns.place_size(); ++i) {
      wanted[columns.place(i)] = columns.position(i);
    }
    for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
      EXPECT_EQ(OwnedPositions(PlanAll(job, module)), wanted)
          << v1::Delivery_Name(delivery) << " " << v1::Module_Name(module);
    }
  }
}

// (from, to) -> lengths of records and payload.
using Lengths =
    std::map<std::pair<size_t, size_t>, std::pair<uint64_t, uint64_t>>;

Lengths Sent(const std::vector<ExchangePlan>& plans) {
  Lengths sent;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    for (const PeerSlice& slice : plans[rank].sends) {
      sent[{rank, slice.peer}] = {slice.records.bytes, slice.payload.bytes};
    }
  }
  return sent;
}

TEST_P(ExchangePlanTest, EverySendMatchesAReceive) {
  for (const auto delivery : {v1::DELIVERY_EXCHANGE, v1::DELIVERY_HYBRID}) {
    for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
      const auto plans = PlanAll(Job(delivery), module);
      Lengths expected;
      for (size_t rank = 0; rank < plans.size(); ++rank) {
        for (const PeerSlice& slice : plans[rank].receives) {
          expected[{slice.peer, rank}] = {slice.records.bytes,
                                          slice.payload.bytes};
        }
      }
      EXPECT_EQ(Sent(plans), expected);
    }
  }
}

// `hybrid` moves what `exchange` moves between ranks of different servers, and
// nothing else.
TEST_P(ExchangePlanTest, HybridMovesOnlyBetweenServers) {
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    const SyntheticJob job = Job(v1::DELIVERY_HYBRID);
    const auto servers =
        GetRule(SyntheticJobMessage(job), module)->server_of_rank;
    Lengths crossing;
    for (const auto& [ranks, lengths] :
         Sent(PlanAll(Job(v1::DELIVERY_EXCHANGE), module))) {
      if (servers[ranks.first] != servers[ranks.second]) {
        crossing[ranks] = lengths;
      }
    }
    EXPECT_EQ(Sent(PlanAll(job, module)), crossing);
  }
}

TEST_P(ExchangePlanTest, DirectAndOffMoveNothing) {
  for (const v1::Delivery delivery : {v1::DELIVERY_DIRECT, v1::DELIVERY_OFF}) {
    for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
      for (const ExchangePlan& plan : PlanAll(Job(delivery), module)) {
        EXPECT_EQ(plan.bytes_sent(), 0);
        EXPECT_EQ(plan.bytes_received(), 0);
        EXPECT_EQ(plan.receive_bytes, 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    DataParallelSizes, ExchangePlanTest,
    ::testing::ValuesIn(std::vector<std::tuple<uint32_t, uint32_t, bool>>{
        {1, 1, false},
        {2, 2, false},
        {4, 4, false},
        {2, 4, false},
        {4, 2, false},
        {2, 3, false},
        {2, 3, true},
        {4, 4, true}}),
    [](const auto& info) {
      return "vision" + std::to_string(std::get<0>(info.param)) + "language" +
             std::to_string(std::get<1>(info.param)) +
             (std::get<2>(info.param) ? "uneven" : "");
    });

TEST(ExchangePlanSizesTest, LanguagePayloadsFollowFromTokens) {
  SyntheticJob job;
  const auto plans = PlanAll(job, v1::MODULE_LANGUAGE);
  for (const ExchangePlan& plan : plans) {
    uint64_t kept = 0;
    for (const OwnedSample& sample : plan.owned) {
      EXPECT_EQ(sample.payload % kSampleAlignment, 0);
      if (!sample.received) kept += sample.expected.payload_bytes;
    }
    uint64_t sent_records = 0;
    for (const PeerSlice& slice : plan.sends)
      sent_records += slice.records.bytes;
    EXPECT_EQ(
        plan.bytes_sent(),
        plan.block.bytes() - plan.block.header.payload - kept + sent_records);
  }
}

absl::Status PlanStatus(const v1::StepSchedule& schedule, v1::Delivery delivery,
                        const v1::Role& role) {
  return PlanExchange(schedule, 0, role, delivery, kGeometry).status();
}

TEST(ExchangePlanErrorsTest, ErrorsNameTheFault) {
  const v1::Role role = RoleOf(v1::MODULE_LANGUAGE, 0);
  const v1::StepSchedule good = SyntheticSchedule({}, 0);
  EXPECT_THAT(
      PlanStatus(good, v1::DELIVERY_EXCHANGE, RoleOf(v1::MODULE_LANGUAGE, 2))
          .message(),
      HasSubstr("language has 2 data-parallel ranks; rank 2"));

  v1::StepSchedule moved = good;
  moved.mutable_micro_batches(0)->set_slot(4, 1);
  const absl::Status slot = PlanStatus(moved, v1::DELIVERY_EXCHANGE, role);
  EXPECT_EQ(slot.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(slot.message(), HasSubstr("position 4"));

  const absl::Status off = PlanStatus(good, v1::DELIVERY_OFF, role);
  EXPECT_EQ(off.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(off.message(), HasSubstr("moves nothing"));

  v1::StepSchedule shared = good;
  for (auto& place : *shared.mutable_micro_batches(0)->mutable_place()) {
    place = 0;
  }
  const absl::Status places = PlanStatus(shared, v1::DELIVERY_EXCHANGE, role);
  EXPECT_EQ(places.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(places.message(), HasSubstr("share place 0"));
}

TEST(ExchangePlanErrorsTest, ValidateFindsInconsistentPlans) {
  auto plan = PlanAll({}, v1::MODULE_VISION)[0];
  ASSERT_FALSE(plan.sends.empty());
  ASSERT_FALSE(plan.receives.empty());
  auto sends = plan;
  sends.sends[0].payload.bytes += 1;
  EXPECT_EQ(sends.Validate().code(), absl::StatusCode::kInternal);
  auto receives = plan;
  receives.receives[0].payload.bytes += 1;
  EXPECT_EQ(receives.Validate().code(), absl::StatusCode::kInternal);
  auto images = plan;
  images.images.pop_back();
  EXPECT_EQ(images.Validate().code(), absl::StatusCode::kInternal);
  auto outside = plan;
  outside.owned.back().payload = uint64_t{1} << 60;
  EXPECT_EQ(outside.Validate().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace ballast
