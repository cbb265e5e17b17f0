// Schedules of models with an image family: columns a crop, and a fingerprint
// that covers every number of the family.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include "proto/schedule/schedule_table.h"
#include "server/media/image_plan/image_planner.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

v1::Config FamilyConfig(const std::string& family) {
  v1::Config config = JobConfig(2, 2, 8, 8);
  v1::Model model;
  model.set_profile(family);
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  *config.mutable_model() = model;
  return config;
}

// Sample i has i % 3 images.
std::vector<FakeSourceIndex::Sample> Samples() {
  std::vector<FakeSourceIndex::Sample> samples(16);
  for (uint32_t i = 0; i < samples.size(); ++i) {
    samples[i].text_tokens = 10 + i;
    samples[i].label_tokens = i;
    for (uint32_t k = 0; k < i % 3; ++k) {
      samples[i].images.push_back({.width = 300 + 100 * i, .height = 700 + k});
    }
  }
  return samples;
}

class FamilyScheduleTest : public ::testing::TestWithParam<const char*> {};

TEST_P(FamilyScheduleTest, ColumnsHoldWhatThePlannerSays) {
  const v1::Config config = FamilyConfig(GetParam());
  const std::vector<FakeSourceIndex::Sample> samples = Samples();
  const FakeSourceIndex index(samples);
  const auto scheduler = Scheduler::Create(config, {&index});
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  const ImagePlanner planner =
      *ImagePlanner::Create(*FindImageFamily(GetParam()));
  const auto schedule = (*scheduler)->Schedule(0);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  ASSERT_TRUE(CheckColumns(*schedule).ok()) << CheckColumns(*schedule);
  const v1::MicroBatchSchedule& columns = schedule->micro_batches(0);
  const FirstEntries first = GetFirstEntries(columns);
  uint64_t images = 0;
  uint64_t patches = 0;
  for (int i = 0; i < columns.tokens_size(); ++i) {
    const FakeSourceIndex::Sample& sample = samples[columns.ordinal(i)];
    ASSERT_EQ(columns.images(i), sample.images.size());
    uint64_t tokens = sample.text_tokens;
    for (uint32_t k = 0; k < sample.images.size(); ++k) {
      const ImageSize& size = sample.images[k];
      const auto plan =
          planner.Plan(size.height, size.width, sample.images.size());
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(GetCrops(columns, first.image[i] + k), plan->crops);
      tokens += plan->placeholders;
      patches += plan->patches;
      ++images;
      const bool wants_sides = planner.family().rule == ImageRule::kPinpoints;
      ASSERT_EQ(columns.image_height_size() > 0, wants_sides);
      if (!wants_sides) continue;
      EXPECT_EQ(columns.image_height(first.image[i] + k), size.height);
      EXPECT_EQ(columns.image_width(first.image[i] + k), size.width);
    }
    EXPECT_EQ(columns.tokens(i), tokens);
  }
  EXPECT_EQ(columns.totals().images(), images);
  EXPECT_EQ(columns.totals().patches(), patches);
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyScheduleTest,
                         ::testing::Values("internvl3", "llava_next", "pixtral",
                                           "gemma3_pan_and_scan"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

TEST(FamilyJobTest, TheJobTellsARankWhatItMustKnow) {
  const FakeSourceIndex index(Samples());
  const auto scheduler =
      *Scheduler::Create(FamilyConfig("llava_onevision"), {&index});
  const v1::Job& job = scheduler->job();
  EXPECT_EQ(job.model().patch(), 14u);
  EXPECT_EQ(job.model().image_form(), v1::Model::IMAGE_FORM_TILES);
  EXPECT_EQ(job.model().position_axes(), 1u);
  EXPECT_EQ(job.crop_shape().margin(), 384u - 27 * 14);
  EXPECT_EQ(job.crop_shape().tile(), 384u);
  EXPECT_EQ(job.crop_shape().dummy_grid_h(), 27u);
}

// Each number and mark of a family, changed alone.
TEST(FamilyJobTest, EveryNumberOfTheFamilyIsInTheFingerprint) {
  using google::protobuf::FieldDescriptor;
  const FakeSourceIndex index(Samples());
  const v1::Config config = FamilyConfig("internvl3");
  const v1::Fingerprint before =
      (*Scheduler::Create(config, {&index}))->fingerprint();
  const auto* fields = v1::ImageFamily::descriptor();
  int changed = 0;
  for (int i = 0; i < fields->field_count(); ++i) {
    const FieldDescriptor* field = fields->field(i);
    v1::Config other = config;
    v1::ImageFamily* family = other.mutable_model()->mutable_image_family();
    const auto* reflection = family->GetReflection();
    if (field->name() == "marks") {
      family->mutable_marks()->set_after("<other>");
    } else if (field->is_repeated()) {
      continue;
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
      if (field->name() == "patch") {
        family->set_patch(28);
      } else if (field->name() == "tile") {
        family->set_tile(896);
      } else {
        reflection->SetUInt32(family, field,
                              reflection->GetUInt32(*family, field) + 1);
      }
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
      reflection->SetUInt64(family, field, 5);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      reflection->SetDouble(family, field, 0.5);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
      reflection->SetBool(family, field, !reflection->GetBool(*family, field));
    } else if (field->name() == "filter") {
      family->set_filter(v1::ImageFamily::FILTER_LANCZOS);
    } else if (field->name() == "name") {
      family->set_name("other");
    } else {
      continue;  // rule and layout: other numbers
    }
    const auto scheduler = Scheduler::Create(other, {&index});
    // A number that the rule cannot take has no schedule at all.
    if (!scheduler.ok()) continue;
    ++changed;
    EXPECT_NE((*scheduler)->fingerprint().hash(), before.hash())
        << field->name();
    EXPECT_NE((*scheduler)->fingerprint().data_hash(), before.data_hash())
        << field->name();
  }
  EXPECT_GE(changed, 12);
}

}  // namespace
}  // namespace ballast
