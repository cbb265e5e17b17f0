#include "client/schedule_check.h"

#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two micro-batches of two samples each, with one and two images, on two ranks.
v1::StepSchedule GoodSchedule() {
  v1::StepSchedule schedule;
  schedule.set_step(9);
  schedule.add_sources("docs");
  for (uint32_t m = 0; m < 2; ++m) {
    v1::MicroBatchSchedule& columns = *schedule.add_micro_batches();
    for (uint32_t i = 0; i < 2; ++i) {
      columns.add_source(0);
      columns.add_ordinal(2 * m + i);
      columns.add_images(1 + i);
      columns.add_tokens(10);
      columns.add_label_tokens(5);
      columns.add_slot(m);
      columns.add_place(1 - i);
    }
    for (int i = 0; i < 3; ++i) {
      columns.add_grid_h(4);
      columns.add_grid_w(6);
    }
    v1::ModuleSchedule& module = *columns.add_modules();
    module.set_module(v1::MODULE_VISION);
    for (uint32_t r = 0; r < 2; ++r) {
      module.add_cost(1);
      module.add_reader(r);
      module.add_owner(1 - r);
      module.add_load_before(1);
      module.add_load_after(1);
    }
  }
  return schedule;
}

TEST(CheckScheduleTest, AcceptsGoodOnes) {
  EXPECT_TRUE(CheckSchedule(GoodSchedule()).ok());
  EXPECT_TRUE(CheckSchedule(v1::StepSchedule()).ok());
}

TEST(CheckScheduleTest, RefusesEachFault) {
  struct Case {
    std::string message;
    std::function<void(v1::MicroBatchSchedule&, v1::ModuleSchedule&)> spoil;
  };
  const Case cases[] = {
      {"length of source is 3, wanted 2",
       [](auto& columns, auto&) { columns.add_source(0); }},
      {"length of ordinal is 0",
       [](auto& columns, auto&) { columns.clear_ordinal(); }},
      {"length of images is 0",
       [](auto& columns, auto&) { columns.clear_images(); }},
      {"length of label_tokens is 0",
       [](auto& columns, auto&) { columns.clear_label_tokens(); }},
      {"length of slot is 0",
       [](auto& columns, auto&) { columns.clear_slot(); }},
      {"length of place is 0",
       [](auto& columns, auto&) { columns.clear_place(); }},
      {"length of grid_h is 3, wanted 4",
       [](auto& columns, auto&) { columns.set_images(0, 2); }},
      // Sums that would wrap in 32 bits do not deceive.
      {"length of grid_h is 3, wanted 8589934590",
       [](auto& columns, auto&) {
         columns.set_images(0, UINT32_MAX);
         columns.set_images(1, UINT32_MAX);
       }},
      {"length of grid_w is 4, wanted 3",
       [](auto& columns, auto&) { columns.add_grid_w(1); }},
      {"source holds 1, wanted less than 1",
       [](auto& columns, auto&) { columns.set_source(1, 1); }},
      {"slot holds 2, wanted less than 2",
       [](auto& columns, auto&) { columns.set_slot(1, 2); }},
      {"grid_h holds 65536",
       [](auto& columns, auto&) { columns.set_grid_h(0, 65536); }},
      {"grid_w holds 4294967295",
       [](auto& columns, auto&) { columns.set_grid_w(0, UINT32_MAX); }},
      {"slot 1 of 2 samples holds place 1 twice",
       [](auto& columns, auto&) { columns.set_place(1, 1); }},
      {"slot 1 of 2 samples holds place 2",
       [](auto& columns, auto&) { columns.set_place(1, 2); }},
      {"vision: length of cost is 3",
       [](auto&, auto& module) { module.add_cost(1); }},
      {"vision: length of reader is 0",
       [](auto&, auto& module) { module.clear_reader(); }},
      {"vision: length of owner is 0",
       [](auto&, auto& module) { module.clear_owner(); }},
      {"vision: length of load_before is 3",
       [](auto&, auto& module) { module.add_load_before(0); }},
      {"vision: reader holds 2, wanted less than 2",
       [](auto&, auto& module) { module.set_reader(0, 2); }},
      {"vision: owner holds 7, wanted less than 2",
       [](auto&, auto& module) { module.set_owner(0, 7); }},
  };
  for (const Case& c : cases) {
    v1::StepSchedule schedule = GoodSchedule();
    v1::MicroBatchSchedule& columns = *schedule.mutable_micro_batches(1);
    c.spoil(columns, *columns.mutable_modules(0));
    const absl::Status status = CheckSchedule(schedule);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("schedule of step 9"), HasSubstr(c.message)));
  }
}

}  // namespace
}  // namespace ballast
