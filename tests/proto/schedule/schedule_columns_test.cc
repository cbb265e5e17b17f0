#include "proto/schedule/schedule_columns.h"

#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/synthetic_schedule.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(ScheduleColumnsTest, AcceptsACompleteSchedule) {
  EXPECT_TRUE(CheckColumns(SyntheticSchedule({}, 0)).ok());
  EXPECT_TRUE(CheckColumns(v1::StepSchedule()).ok());
}

TEST(ScheduleColumnsTest, NamesTheColumnThatIsWrong) {
  using Columns = v1::MicroBatchSchedule;
  const struct {
    std::function<void(Columns*)> spoil;
    const char* message;
  } cases[] = {
      {[](Columns* c) { c->add_tokens(1); }, "column source has 6"},
      {[](Columns* c) { c->add_ordinal(1); }, "column ordinal has 7"},
      {[](Columns* c) { c->clear_images(); }, "column images has 0"},
      {[](Columns* c) { c->clear_label_tokens(); }, "column label_tokens"},
      {[](Columns* c) { c->clear_slot(); }, "column slot"},
      {[](Columns* c) { c->clear_place(); }, "column place"},
      {[](Columns* c) { c->mutable_grid_h()->RemoveLast(); }, "column grid_h"},
      {[](Columns* c) { c->add_grid_w(2); }, "column grid_w"},
      {[](Columns* c) { c->set_images(0, 0xFFFFFFFF); }, "column grid_h"},
      {[](Columns* c) { c->set_grid_w(1, 0); }, "grid_w of entry 1 is 0"},
      {[](Columns* c) { c->set_grid_h(0, 65536); }, "grid_h of entry 0"},
      {[](Columns* c) { c->add_encoded_bytes(1); },
       "column encoded_bytes has 1"},
      {[](Columns* c) {
         c->mutable_encoded_bytes()->Resize(c->grid_h_size(), 0);
         c->set_encoded_bytes(1, 1 << 26);
       },
       "encoded_bytes of entry 1 is 67108864"},
      {[](Columns* c) { c->add_crops(1); }, "column crops has 1"},
      {[](Columns* c) {
         c->mutable_crops()->Resize(c->grid_h_size(), 1);
         c->set_crops(1, 0);
       },
       "crops of entry 1 is 0"},
      {[](Columns* c) {
         c->mutable_crops()->Resize(c->grid_h_size(), 1);
         c->set_crops(1, 2);
       },
       "column grid_h"},
      {[](Columns* c) {
         c->mutable_crops()->Resize(c->grid_h_size(), 1);
         c->set_crops(0, 2);
         c->add_grid_h(1);
         c->add_grid_w(1);
         c->mutable_encoded_bytes()->Resize(c->grid_h_size(), 0);
         c->set_encoded_bytes(1, 9);
       },
       "entry 1 is of image 0 with 2 crops"},
      {[](Columns* c) { c->add_image_width(5); }, "column image_height has 0"},
      {[](Columns* c) { c->add_grid_t(1); }, "column grid_t has 1"},
      {[](Columns* c) { c->mutable_grid_t()->Resize(c->grid_h_size(), 1); },
       "column seconds_per_patch has 0"},
      {[](Columns* c) {
         c->mutable_grid_t()->Resize(c->grid_h_size(), 1);
         c->mutable_seconds_per_patch()->Resize(c->grid_h_size(), 0);
       },
       ""},  // frames that are crops
      {[](Columns* c) {
         c->mutable_grid_t()->Resize(c->grid_h_size(), 2);
         c->mutable_seconds_per_patch()->Resize(c->grid_h_size(), 0);
       },
       "2 temporal patches of 0 s and 1 frames: wanted as many"},
      {[](Columns* c) {
         c->mutable_grid_t()->Resize(c->grid_h_size(), 1);
         c->mutable_seconds_per_patch()->Resize(c->grid_h_size(), -1);
       },
       "1 temporal patches of -1 s and 1 frames: wanted seconds of 0 or more"},
      {[](Columns* c) {
         c->mutable_grid_t()->Resize(c->grid_h_size(), 0);
         c->mutable_seconds_per_patch()->Resize(c->grid_h_size(), 1);
       },
       "0 temporal patches of 1 s and 1 frames: wanted seconds of 0 or more"},
      {[](Columns* c) {
         c->mutable_grid_t()->Resize(c->grid_h_size(), 2);
         c->mutable_seconds_per_patch()->Resize(c->grid_h_size(), 1);
       },
       "wanted at least a frame a temporal patch"},
      {[](Columns* c) { c->set_source(2, 2); }, "source of entry 2 is 2"},
      {[](Columns* c) { c->set_slot(0, 2); }, "slot of entry 0 is 2"},
      {[](Columns* c) { c->mutable_modules(0)->set_owner(3, 2); },
       "vision.owner of entry 3 is 2"},
      {[](Columns* c) { c->mutable_modules(1)->set_reader(3, 2); },
       "language.reader of entry 3 is 2"},
      {[](Columns* c) { c->mutable_modules(0)->add_cost(1); },
       "vision.cost has 7"},
      {[](Columns* c) { c->mutable_modules(1)->clear_owner(); },
       "language.owner has 0"},
      {[](Columns* c) { c->mutable_modules(1)->clear_load_before(); },
       "language.load_before has 0"},
  };
  for (const auto& c : cases) {
    v1::StepSchedule schedule = SyntheticSchedule({}, 5);
    c.spoil(schedule.mutable_micro_batches(1));
    const absl::Status status = CheckColumns(schedule);
    if (std::string(c.message).empty()) {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("step 5 micro-batch 1: schedule:"));
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
}

TEST(ScheduleColumnsTest, EachPlaceOccursOnce) {
  v1::StepSchedule schedule = SyntheticSchedule({}, 5);
  v1::MicroBatchSchedule& columns = *schedule.mutable_micro_batches(1);
  const uint32_t samples = columns.place_size();
  columns.set_place(0, columns.place(1));
  EXPECT_THAT(std::string(CheckColumns(schedule).message()),
              HasSubstr("step 5: schedule: slot 1 of 6 samples holds place"));
  EXPECT_THAT(std::string(CheckColumns(schedule).message()),
              HasSubstr(" twice"));
  columns.set_place(0, samples);
  EXPECT_THAT(std::string(CheckColumns(schedule).message()),
              HasSubstr("slot 1 of 6 samples holds place 6"));
}

}  // namespace
}  // namespace ballast
