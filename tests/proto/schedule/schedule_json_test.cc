#include "proto/schedule/schedule_json.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(ScheduleJsonTest, HasTheDocumentedKeysInOrder) {
  v1::StepSchedule schedule;
  schedule.set_step(3);
  schedule.set_fingerprint("f");
  schedule.add_sources("docs");
  v1::MicroBatchSchedule& micro_batch = *schedule.add_micro_batches();
  micro_batch.add_position(48);
  micro_batch.add_source(0);
  micro_batch.add_ordinal(17);
  micro_batch.add_images(2);
  for (const uint32_t side : {4, 6}) {
    micro_batch.add_grid_h(side);
    micro_batch.add_grid_w(side);
  }
  micro_batch.add_tokens(33);
  micro_batch.add_label_tokens(5);
  micro_batch.add_slot(0);
  micro_batch.add_place(0);
  v1::ModuleSchedule& vision = *micro_batch.add_modules();
  vision.set_module(v1::MODULE_VISION);
  vision.add_cost(52.5);
  vision.add_reader(0);
  vision.add_owner(1);
  vision.add_load_before(52.5);
  vision.add_load_before(0);
  vision.add_load_after(0);
  vision.add_load_after(52.5);
  micro_batch.mutable_totals()->set_tokens(33);
  schedule.mutable_totals()->set_tokens_squared(uint64_t{1} << 60);

  EXPECT_EQ(
      ScheduleToJson(schedule),
      R"({"step":3,"fingerprint":"f","micro_batches":[{"samples":[)"
      R"({"position":48,"sample":"docs:17","images":2,"patches":52,)"
      R"("tokens":33,"label_tokens":5,"cost":{"vision":52.5},)"
      R"("reader":{"vision":0},"owner":{"vision":1},"slot":0,"place":0}],)"
      R"("load":{"vision":{"before":[52.5,0.0],"after":[0.0,52.5]}}}],"totals":{"tokens":0,)"
      R"("tokens_squared":1152921504606846976,"label_tokens":0,)"
      R"("patches":0,"images":0}})");
}

TEST(ScheduleJsonTest, NamesOtherSplitsThanTrain) {
  v1::StepSchedule schedule;
  EXPECT_EQ(ScheduleToJson(schedule).find("split"), std::string::npos);
  schedule.set_split(v1::SPLIT_VALID);
  EXPECT_NE(ScheduleToJson(schedule).find(R"("split":"valid")"),
            std::string::npos);
}

}  // namespace
}  // namespace ballast
