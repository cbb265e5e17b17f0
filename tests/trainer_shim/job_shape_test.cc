#include "trainer_shim/batch_layout.h"

#include <functional>

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "tests/fakes/synthetic_schedule.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(JobShapeTest, TakesTheModulesSizes) {
  SyntheticJob job;
  job.language_dp = 4;
  job.align = 8;
  const auto shape =
      GetShape(SyntheticJobMessage(job), RoleOf(v1::MODULE_LANGUAGE, 3));
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->dp, 4);
  EXPECT_EQ(shape->align, 8);
  EXPECT_EQ(shape->pad_id, 7);
  EXPECT_EQ(shape->crops.rows.row(), 3 * 2 * 4 * 4);
  EXPECT_TRUE(shape->exchanges());
}

TEST(JobShapeTest, KnowsHowImagesAreResized) {
  v1::Job job = SyntheticJobMessage(SyntheticJob());
  v1::Role role = RoleOf(v1::MODULE_LANGUAGE, 0);
  role.set_module(v1::MODULE_VISION);
  EXPECT_EQ(GetShape(job, role)->resampling, Resampling());
  job.mutable_model()->set_resample(v1::Model::RESAMPLE_TORCHVISION);
  job.mutable_model()->mutable_image_family()->set_filter(
      v1::ImageFamily::FILTER_LANCZOS);
  const auto shape = GetShape(job, role);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->resampling.filter, ResampleFilter::kLanczos);
  EXPECT_EQ(shape->resampling.library, ResampleLibrary::kTorchvision);
}

// The table of TokensByPatchesTest in adapters_megatron_test.py.
TEST(JobShapeTest, CountsRowsByPatches) {
  v1::Job job = SyntheticJobMessage(SyntheticJob());
  job.set_placement(v1::Balance::PLACEMENT_SPLIT);
  const auto refuses = [&](absl::string_view family) {
    v1::ImageFamily* images = job.mutable_model()->mutable_image_family();
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        std::string(family), images));
    const auto shape = GetShape(job, RoleOf(v1::MODULE_LANGUAGE, 0));
    if (shape.ok()) return false;
    EXPECT_THAT(std::string(shape.status().message()),
                HasSubstr("not counted by patches"));
    return true;
  };
  EXPECT_FALSE(refuses(""));
  EXPECT_FALSE(refuses("rule: RULE_TILE_GRID"));
  EXPECT_TRUE(refuses("rule: RULE_PINPOINTS"));
  EXPECT_TRUE(refuses("tokens_a_row: 1"));
  EXPECT_TRUE(refuses("tokens_a_row: 1 marks {before: '<b>'}"));
  EXPECT_FALSE(refuses("tokens_a_row: 1 marks {row_end: '<e>'}"));
  EXPECT_TRUE(refuses("tokens_an_image: 2"));
  EXPECT_FALSE(refuses("tokens_an_image: 2 marks {before: '<b>'}"));
  EXPECT_FALSE(refuses("tokens_an_image: 2 marks {after: '<a>'}"));
}

TEST(JobShapeTest, OneRankAndDirectExchangeNothing) {
  SyntheticJob job;
  job.language_dp = 1;
  EXPECT_FALSE(
      GetShape(SyntheticJobMessage(job), RoleOf(v1::MODULE_LANGUAGE, 0))
          ->exchanges());
  job.language_dp = 2;
  job.delivery = v1::DELIVERY_DIRECT;
  EXPECT_FALSE(
      GetShape(SyntheticJobMessage(job), RoleOf(v1::MODULE_LANGUAGE, 0))
          ->exchanges());
}

TEST(JobShapeTest, KnowsTheRanksPlace) {
  SyntheticJob job;
  job.align = 8;
  job.tp = 2;
  job.pp = 2;
  job.cp = 4;
  TrainerPlace place;
  place.tp_rank = 1;
  place.pp_rank = 1;
  place.cp_rank = 3;
  const auto shape =
      GetShape(SyntheticJobMessage(job), RoleOf(v1::MODULE_LANGUAGE, 0), place);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->place, place);
  EXPECT_FALSE(shape->fields.input_ids);
  EXPECT_TRUE(shape->fields.labels);
  EXPECT_EQ(shape->context.size, 4);
  EXPECT_EQ(shape->context.rank, 3);
  v1::Role vision = RoleOf(v1::MODULE_LANGUAGE, 0);
  vision.set_module(v1::MODULE_VISION);
  place.pp_rank = 0;
  const auto pixels = GetShape(SyntheticJobMessage(job), vision, place);
  ASSERT_TRUE(pixels.ok()) << pixels.status();
  EXPECT_EQ(pixels->context.size, 1);  // pixels are not sliced
  place.tp_rank = 2;
  EXPECT_THAT(
      GetShape(SyntheticJobMessage(job), vision, place).status().message(),
      HasSubstr("vision: the module has 2 tensor-parallel ranks"));
  job.align = 4;
  EXPECT_THAT(GetShape(SyntheticJobMessage(job), RoleOf(v1::MODULE_LANGUAGE, 0))
                  .status()
                  .message(),
              HasSubstr("multiples of 4 tokens, wanted of 8"));
}

// Padding must let as many ranks cut a sample as may share a pack.
TEST(JobShapeTest, KnowsHowManyRanksMayShareAPack) {
  SyntheticJob job;
  job.align = 8;
  v1::Job message = SyntheticJobMessage(job);
  const v1::Role role = RoleOf(v1::MODULE_LANGUAGE, 0);
  EXPECT_EQ(GetShape(message, role)->dynamic_cp, 1);
  message.set_dynamic_cp(4);
  const auto shape = GetShape(message, role);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->dynamic_cp, 4);
  EXPECT_EQ(shape->context.size, 1);
  message.set_dynamic_cp(8);
  EXPECT_THAT(GetShape(message, role).status().message(),
              HasSubstr("multiples of 8 tokens, wanted of 16"));
  message.set_dynamic_cp(4);
  for (v1::Job::ModuleSize& module : *message.mutable_modules()) {
    module.set_cp(2);
  }
  EXPECT_THAT(GetShape(message, role).status().message(),
              HasSubstr("dynamic_cp is 4 with language cp 2, wanted cp 1"));
}

// An older server leaves the fields at 0.
TEST(JobShapeTest, MissingSizesCountAsOne) {
  SyntheticJob job;
  job.tp = job.pp = job.cp = 0;
  const auto shape =
      GetShape(SyntheticJobMessage(job), RoleOf(v1::MODULE_LANGUAGE, 0));
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->layout.tp, 1);
  EXPECT_TRUE(shape->fields.input_ids && shape->fields.labels);
  EXPECT_EQ(shape->context.size, 1);
}

// Padded totals use the language module's alignment on ranks of either module.
TEST(JobShapeTest, TotalsUseTheLanguageModulesAlign) {
  SyntheticJob job;
  v1::Job message = SyntheticJobMessage(job);
  message.mutable_modules(0)->set_align(1);
  message.mutable_modules(1)->set_align(16);
  v1::Role vision = RoleOf(v1::MODULE_LANGUAGE, 0);
  vision.set_module(v1::MODULE_VISION);
  EXPECT_EQ(GetShape(message, vision)->padding.align, 16);
  EXPECT_EQ(GetShape(message, RoleOf(v1::MODULE_LANGUAGE, 0))->padding.align,
            16);
  message.mutable_modules()->RemoveLast();
  EXPECT_EQ(GetShape(message, vision)->padding.align, 1);
}

TEST(JobShapeTest, RowsOfPaddedBatches) {
  v1::Job message = SyntheticJobMessage(SyntheticJob());  // align 4
  EXPECT_FALSE(GetShape(message, RoleOf(v1::MODULE_LANGUAGE, 0))->padding.rows);
  message.set_padded(true);
  message.set_row_length(64);
  v1::Role vision = RoleOf(v1::MODULE_LANGUAGE, 0);
  vision.set_module(v1::MODULE_VISION);
  for (const v1::Role& role : {vision, RoleOf(v1::MODULE_LANGUAGE, 0)}) {
    const auto shape = GetShape(message, role);
    ASSERT_TRUE(shape.ok()) << shape.status();
    EXPECT_TRUE(shape->padding.rows);
    EXPECT_EQ(shape->padding.row_length, 64);
  }
}

TEST(JobShapeTest, ErrorsNameTheField) {
  const struct {
    std::function<void(v1::Job*)> spoil;
    const char* message;
  } cases[] = {
      {[](auto* j) { j->clear_modules(); }, "language is not configured"},
      {[](auto* j) { j->mutable_modules(1)->set_dp(1); }, "rank 1 was asked"},
      {[](auto* j) { j->mutable_modules(1)->set_align(0); }, "align is 0"},
      {[](auto* j) { j->set_row_length(6); }, "row_length is 6"},
      {[](auto* j) { j->set_row_length(0xFFFFFFFF); }, "row_length"},
      {[](auto* j) { j->mutable_model()->set_patch(0); }, "model.patch is 0"},
      {[](auto* j) { j->mutable_model()->set_patch(1u << 31); }, "model.patch"},
      {[](auto* j) { j->mutable_model()->set_merge(0); }, "model.merge is 0"},
      {[](auto* j) {
         j->mutable_model()->set_patch(64);
         j->mutable_model()->set_merge(32);
       },
       "model.patch times model.merge is 2048"},
      {[](auto* j) { j->mutable_model()->set_temporal_patch(17); },
       "model.temporal_patch is 17"},
      {[](auto* j) { j->mutable_model()->clear_mean(); }, "model.mean is 0"},
      {[](auto* j) { j->mutable_model()->set_std(1, 0); }, "model.std[1] is 0"},
      {[](auto* j) { j->mutable_model()->set_position_axes(2); },
       "position_axes is 2"},
      {[](auto* j) { j->clear_delivery(); }, "delivery is not set"},
  };
  for (const auto& c : cases) {
    v1::Job job = SyntheticJobMessage({});
    c.spoil(&job);
    const absl::Status status =
        GetShape(job, RoleOf(v1::MODULE_LANGUAGE, 1)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
}

TEST(JobShapeTest, HybridExchangesOnlyWithTwoServers) {
  SyntheticJob hybrid;
  hybrid.delivery = v1::DELIVERY_HYBRID;
  v1::Job job = SyntheticJobMessage(hybrid);
  EXPECT_TRUE(GetShape(job, RoleOf(v1::MODULE_LANGUAGE, 0))->exchanges());
  for (auto& module : *job.mutable_modules()) module.clear_server_of_rank();
  EXPECT_FALSE(GetShape(job, RoleOf(v1::MODULE_LANGUAGE, 0))->exchanges());
  job.mutable_modules(1)->add_server_of_rank(0);
  EXPECT_THAT(
      std::string(
          GetShape(job, RoleOf(v1::MODULE_LANGUAGE, 0)).status().message()),
      HasSubstr("server_of_rank of language has 1 entries"));
}

}  // namespace
}  // namespace ballast
