#include "proto/schedule/schedule_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/fakes/synthetic_schedule.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;

TEST(ImageColumnsTest, AssignsImagesToSamplesInOrder) {
  v1::MicroBatchSchedule micro_batch;
  for (const uint32_t images : {2, 0, 1}) micro_batch.add_images(images);
  for (const uint32_t height : {2, 4, 65535}) micro_batch.add_grid_h(height);
  for (const uint32_t width : {3, 5, 65535}) micro_batch.add_grid_w(width);
  const FirstEntries first = GetFirstEntries(micro_batch);
  EXPECT_THAT(first.image, ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(first.crop, ElementsAre(0, 2, 2, 3));
  EXPECT_EQ(GetCrops(micro_batch, 1), 1u);
  EXPECT_EQ(CropPatches(micro_batch, 1), 20u);
  EXPECT_THAT(SamplePatches(micro_batch),
              ElementsAre(6 + 20, 0, uint64_t{65535} * 65535));
}

TEST(ImageColumnsTest, CountsTheCropsOfEachImage) {
  v1::MicroBatchSchedule micro_batch;
  for (const uint32_t images : {2, 0, 1}) micro_batch.add_images(images);
  for (const uint32_t crops : {3, 1, 2}) micro_batch.add_crops(crops);
  for (const uint32_t side : {1, 2, 3, 4, 5, 6}) {
    micro_batch.add_grid_h(side);
    micro_batch.add_grid_w(2);
  }
  const FirstEntries first = GetFirstEntries(micro_batch);
  EXPECT_THAT(first.image, ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(first.crop, ElementsAre(0, 4, 4, 6));
  EXPECT_EQ(GetCrops(micro_batch, 0), 3u);
  EXPECT_THAT(SamplePatches(micro_batch),
              ElementsAre(2 + 4 + 6 + 8, 0, 10 + 12));
}

// An image of 6 patches; then a video of 5 frames in 3 temporal patches of 8
// patches each, and one of 2 frames in 1 of 20.
TEST(ImageColumnsTest, CountsTheTemporalPatchesOfAVideo) {
  v1::MicroBatchSchedule micro_batch;
  for (const uint32_t images : {2, 0, 1}) micro_batch.add_images(images);
  for (const uint32_t crops : {1, 5, 2}) micro_batch.add_crops(crops);
  for (const uint32_t t : {0, 3, 1}) micro_batch.add_grid_t(t);
  for (const uint32_t height : {2, 4, 4, 4, 4, 4, 5, 5}) {
    micro_batch.add_grid_h(height);
    micro_batch.add_grid_w(height == 2 ? 3 : height == 4 ? 2 : 4);
  }
  EXPECT_THAT(SamplePatches(micro_batch), ElementsAre(6 + 3 * 8, 0, 20));
  EXPECT_THAT(SampleVideos(micro_batch), ElementsAre(1, 0, 1));
  EXPECT_EQ(GridT(micro_batch, 0), 0u);
  EXPECT_EQ(GridT(micro_batch, 1), 3u);
}

TEST(ImageColumnsTest, AnEmptyMicroBatchHasNoImages) {
  EXPECT_THAT(GetFirstEntries(v1::MicroBatchSchedule()).image, ElementsAre(0));
  EXPECT_THAT(GetFirstEntries(v1::MicroBatchSchedule()).crop, ElementsAre(0));
  EXPECT_THAT(SamplePatches(v1::MicroBatchSchedule()), ElementsAre());
}

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
      {[](Columns* c) { c->add_first_tokens(1); }, "column first_tokens has 1"},
      {[](Columns* c) {
         c->mutable_first_tokens()->Resize(c->tokens_size(), 0);
         c->set_first_tokens(2, c->tokens(2));
       },
       "first_tokens of entry 2 is"},
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

// Packs of four and two ranks, and of one.
TEST(ScheduleColumnsTest, PacksThatRanksShareDoNotOverlap) {
  v1::StepSchedule schedule;
  schedule.add_sources("docs");
  v1::MicroBatchSchedule& columns = *schedule.add_micro_batches();
  v1::ModuleSchedule& module = *columns.add_modules();
  module.set_module(v1::MODULE_LANGUAGE);
  for (int r = 0; r < 8; ++r) {
    module.add_load_before(0);
    module.add_load_after(0);
  }
  const uint32_t owners[] = {0, 0, 4, 6, 7};
  const uint32_t ranks[] = {4, 4, 2, 1, 1};
  for (int i = 0; i < 5; ++i) {
    columns.add_position(i);
    columns.add_source(0);
    columns.add_ordinal(i);
    columns.add_images(0);
    columns.add_tokens(1);
    columns.add_label_tokens(1);
    columns.add_slot(0);
    columns.add_place(i);
    module.add_cost(1);
    module.add_reader(0);
    module.add_owner(owners[i]);
    module.add_pack_ranks(ranks[i]);
  }
  EXPECT_TRUE(CheckColumns(schedule).ok()) << CheckColumns(schedule);
  EXPECT_EQ(PackRanks(module, 2), 2u);
  EXPECT_FALSE(TrainsOn(module, 2, 3));
  EXPECT_TRUE(TrainsOn(module, 2, 4));
  EXPECT_TRUE(TrainsOn(module, 2, 5));
  EXPECT_FALSE(TrainsOn(module, 2, 6));
  EXPECT_THAT(ScheduleToJson(schedule),
              testing::HasSubstr(R"("pack_ranks":{"language":2})"));

  const auto fault = [&](int entry, uint32_t owner, uint32_t shared) {
    v1::StepSchedule wrong = schedule;
    v1::ModuleSchedule& of =
        *wrong.mutable_micro_batches(0)->mutable_modules(0);
    of.set_owner(entry, owner);
    of.set_pack_ranks(entry, shared);
    return std::string(CheckColumns(wrong).message());
  };
  EXPECT_THAT(fault(2, 4, 3), testing::HasSubstr("pack_ranks of entry 2 is 3"));
  EXPECT_THAT(fault(2, 4, 0), testing::HasSubstr("pack_ranks of entry 2 is 0"));
  EXPECT_THAT(fault(2, 5, 2), testing::HasSubstr("is 2 from rank 5 on"));
  EXPECT_THAT(fault(4, 7, 2), testing::HasSubstr("is 2 from rank 7 on"));
  EXPECT_THAT(fault(1, 0, 2), testing::HasSubstr("the same, 4"));
  EXPECT_THAT(fault(3, 5, 1),
              testing::HasSubstr("rank 5 has its own pack and shares one "
                                 "that ends at rank 6"));
  module.mutable_pack_ranks()->RemoveLast();
  EXPECT_THAT(
      std::string(CheckColumns(schedule).message()),
      testing::HasSubstr("language.pack_ranks has 4 entries, wanted 5"));
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
      R"({"position":48,"sample":"docs:17","source":0,"images":2,"patches":52,)"
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
