// Schedules of jobs whose order a plan file gives.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/schedule/fingerprint.h"
#include "server/schedule/plan_steps.h"
#include "server/schedule/scheduler.h"
#include "tests/server/schedule/changed_order.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Rows in memory.
class FakePlan final : public PlanRows {
 public:
  FakePlan(uint64_t first_step, std::vector<std::vector<PlanRow>> steps)
      : first_step_(first_step) {
    for (const auto& step : steps) {
      rows_.insert(rows_.end(), step.begin(), step.end());
      starts_.push_back(rows_.size());
    }
  }

  uint64_t first_step() const override { return first_step_; }
  absl::Span<const uint64_t> starts() const override { return starts_; }
  bool HasPacks(uint64_t step) const override {
    return rows_[starts_[step - first_step_]].pack != PlanRow::kNoPack;
  }
  const std::string& digest() const override { return digest_; }
  absl::StatusOr<std::vector<PlanRow>> Read(uint64_t first,
                                            uint64_t count) const override {
    return std::vector<PlanRow>(rows_.begin() + first,
                                rows_.begin() + first + count);
  }
  absl::StatusOr<std::vector<uint64_t>> CountSources(
      uint64_t rows) const override {
    std::vector<uint64_t> counts(3);
    for (uint64_t i = 0; i < rows; ++i) ++counts[rows_[i].source];
    return counts;
  }

 private:
  const uint64_t first_step_;
  std::vector<PlanRow> rows_;
  std::vector<uint64_t> starts_ = {0};
  const std::string digest_ = std::string(32, 'd');
};

// A step of samples 0, 1, … of source 1, chat.
std::vector<PlanRow> StepOf(uint64_t first, uint32_t samples) {
  std::vector<PlanRow> rows;
  for (uint32_t i = 0; i < samples; ++i) rows.push_back({first + i, 1});
  return rows;
}

std::string Fault(const v1::Config& config, std::shared_ptr<FakePlan> plan) {
  return std::string(
      Scheduler::Create(config, Indexes(), {.plan = std::move(plan)})
          .status()
          .message());
}

TEST(PlanScheduleTest, ReplacesTheOrderFromItsFirstStepOn) {
  const auto plain = MakeChanged(Unchanged());
  const auto planned = *Scheduler::Create(
      Unchanged(), Indexes(),
      {.plan = std::make_shared<FakePlan>(
           3, std::vector<std::vector<PlanRow>>{StepOf(5, 8), StepOf(0, 4)})});
  for (uint64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(SamplesOf(*plain, step), SamplesOf(*planned, step));
  }
  EXPECT_THAT(SamplesOf(*planned, 4),
              ElementsAre("chat:0", "chat:1", "chat:2", "chat:3"));
  EXPECT_EQ(SamplesOf(*planned, 3).size(), 8u);
  EXPECT_EQ(planned->job().end_step(), 5u);
  EXPECT_THAT(planned->Schedule(5).status().message(),
              HasSubstr("the data end before step 5 (the end of order.plan)"));
  // Positions go on, and so do the sums of the mixture.
  EXPECT_EQ(planned->Schedule(3)->micro_batches(0).position(0), 24u);
  const auto at_end = planned->MixtureBefore(5);
  ASSERT_TRUE(at_end.ok()) << at_end.status();
  EXPECT_EQ(at_end->samples(), 24u + 12);
  uint64_t samples = 0;
  for (const auto& source : at_end->sources()) samples += source.samples();
  EXPECT_EQ(samples, at_end->samples());
  EXPECT_EQ(at_end->sources(1).samples(),
            plain->MixtureBefore(3)->sources(1).samples() + 12);
  // The job lists the steps.
  ASSERT_EQ(planned->job().step_ranges_size(), 2);
  EXPECT_EQ(planned->job().step_ranges(1).samples(), 4u);
  // A checkpoint of the job without the plan goes on with it at step 3.
  EXPECT_TRUE(CheckSameData(plain->fingerprint(), planned->fingerprint(), "it",
                            v1::SPLIT_TRAIN, 3)
                  .ok());
  EXPECT_FALSE(CheckSameData(plain->fingerprint(), planned->fingerprint(), "it",
                             v1::SPLIT_TRAIN, 4)
                   .ok());
}

TEST(PlanScheduleTest, PacksAreThoseOfThePlan) {
  v1::Config config = Unchanged();
  config.mutable_packing()->set_mode(v1::Packing::MODE_SCHEDULED);
  config.mutable_packing()->set_max_tokens_per_rank(8192);
  config.mutable_packing()->set_virtual_pipeline_group(1);
  std::vector<PlanRow> step = StepOf(0, 7);
  const uint32_t packs[] = {2, 0, 1, 3, 0, 0, 2};
  for (size_t i = 0; i < step.size(); ++i) step[i].pack = packs[i];
  const auto planned =
      Scheduler::Create(config, Indexes(),
                        {.plan = std::make_shared<FakePlan>(
                             0, std::vector<std::vector<PlanRow>>{step})});
  ASSERT_TRUE(planned.ok()) << planned.status();
  const v1::StepSchedule schedule = *(*planned)->Schedule(0);
  ASSERT_EQ(schedule.micro_batches_size(), 2);
  for (int m = 0; m < 2; ++m) {
    const v1::MicroBatchSchedule& columns = schedule.micro_batches(m);
    for (int i = 0; i < columns.position_size(); ++i) {
      const uint32_t pack = packs[columns.position(i)];
      EXPECT_EQ(pack / 2, static_cast<uint32_t>(m));
      for (const auto& module : columns.modules()) {
        EXPECT_EQ(module.owner(i), pack % 2);
      }
    }
  }
  // Packs are limited, and whole micro-batches, before the first step.
  config.mutable_packing()->set_max_tokens_per_rank(256);
  EXPECT_THAT(Fault(config, std::make_shared<FakePlan>(
                                0, std::vector<std::vector<PlanRow>>{step})),
              HasSubstr("a pack holds 256"));
  config.mutable_packing()->set_max_tokens_per_rank(8192);
  step.pop_back();
  step[3].pack = 0;
  EXPECT_THAT(
      Fault(config,
            std::make_shared<FakePlan>(
                0, std::vector<std::vector<PlanRow>>{StepOf(10, 4), step})),
      HasSubstr("packs; wanted a multiple"));
}

TEST(PlanScheduleTest, RefusesWhatItCannotTrain) {
  using Steps = std::vector<std::vector<PlanRow>>;
  EXPECT_THAT(
      Fault(Unchanged(), std::make_shared<FakePlan>(0, Steps{StepOf(0, 6)})),
      HasSubstr("order.plan: row 0: step 0 has 6 rows; wanted a "
                "multiple of 4, batch.micro"));
  std::vector<PlanRow> packed = StepOf(0, 4);
  for (PlanRow& row : packed) row.pack = 0;
  EXPECT_THAT(Fault(Unchanged(), std::make_shared<FakePlan>(0, Steps{packed})),
              HasSubstr("step 0 has packs; wanted packing.mode: scheduled"));
  v1::Config skips = Unchanged();
  AddSkip(3, 1, &skips);
  EXPECT_THAT(Fault(skips, std::make_shared<FakePlan>(2, Steps{StepOf(0, 4)})),
              HasSubstr("order.skips: alters steps from 3 on"));
  EXPECT_EQ(Fault(skips, std::make_shared<FakePlan>(4, Steps{StepOf(0, 4)})),
            "");
  v1::Config sizes = Unchanged();
  AddSize(2, 12, &sizes);
  EXPECT_THAT(Fault(sizes, std::make_shared<FakePlan>(2, Steps{StepOf(0, 4)})),
              HasSubstr("batch.changes: alters steps from 2 on"));
}

TEST(PlanScheduleTest, ManySizesAreNotListed) {
  std::vector<std::vector<PlanRow>> steps;
  for (int n = 0; n < 600; ++n) steps.push_back(StepOf(n % 5, n % 2 ? 4 : 8));
  const auto planned = *Scheduler::Create(
      Unchanged(), Indexes(), {.plan = std::make_shared<FakePlan>(0, steps)});
  ASSERT_EQ(planned->job().step_ranges_size(), 1);
  EXPECT_EQ(planned->job().step_ranges(0).samples(), 0u);
  EXPECT_EQ(planned->job().global_batch(), 8u);
  for (const uint64_t step : {0, 1, 598, 599}) {
    EXPECT_EQ(SamplesOf(*planned, step).size(), step % 2 ? 4u : 8u);
    EXPECT_EQ(**planned->GetStep(
                  planned->Schedule(step)->micro_batches(0).position(0)),
              step);
  }
}

}  // namespace
}  // namespace ballast
