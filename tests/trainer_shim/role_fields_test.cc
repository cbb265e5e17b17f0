#include "trainer_shim/role_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr v1::Module kLanguage = v1::MODULE_LANGUAGE;
constexpr v1::Module kVision = v1::MODULE_VISION;

// The tensors that a rank receives, one letter each: input Ids, Labels,
// Positions, piXels.
std::string Letters(const BatchFields& fields) {
  std::string text;
  if (fields.input_ids) text += 'I';
  if (fields.labels) text += 'L';
  if (fields.positions) text += 'P';
  if (fields.pixels) text += 'X';
  return text;
}

TEST(RoleFieldsTest, FollowModuleAndStage) {
  TrainerPlace predicts_more;
  predicts_more.needs_input_ids = predicts_more.needs_labels = true;
  TrainerPlace wants_labels;
  wants_labels.needs_labels = true;
  const struct {
    v1::Module module;
    uint32_t pp_rank;
    uint32_t pp;
    TrainerPlace place;
    const char* fields;
  } rows[] = {
      {kLanguage, 0, 1, {}, "ILP"},
      {kLanguage, 0, 2, {}, "IP"},
      {kLanguage, 1, 2, {}, "LP"},
      {kLanguage, 0, 4, {}, "IP"},
      {kLanguage, 1, 4, {}, "P"},
      {kLanguage, 2, 4, {}, "P"},
      {kLanguage, 3, 4, {}, "LP"},
      // Multi-token prediction, on any stage.
      {kLanguage, 3, 4, predicts_more, "ILP"},
      {kLanguage, 2, 4, predicts_more, "ILP"},
      {kLanguage, 0, 4, wants_labels, "ILP"},
      {kLanguage, 1, 4, wants_labels, "LP"},
      {kVision, 0, 1, {}, "X"},
      {kVision, 0, 2, {}, "X"},
      {kVision, 1, 2, {}, ""},
      {kVision, 1, 2, predicts_more, ""},
      {kVision, 0, 2, predicts_more, "X"},
  };
  for (const auto& row : rows) {
    for (const uint32_t tp_rank : {0u, 3u}) {
      for (const uint32_t cp_rank : {0u, 1u}) {
        TrainerPlace place = row.place;
        place.tp_rank = tp_rank;
        place.cp_rank = cp_rank;
        place.pp_rank = row.pp_rank;
        const ModuleLayout layout = {4, row.pp, 2};
        const BatchFields fields = FieldsOf(row.module, place, layout);
        EXPECT_EQ(Letters(fields), row.fields)
            << row.module << " stage " << row.pp_rank << " of " << row.pp;
        EXPECT_EQ(fields.any(), *row.fields != '\0');
      }
    }
  }
}

// Virtual stages: chunk c of rank r is stage c * pp + r.
TEST(RoleFieldsTest, ARankReceivesTheUnionOverItsParts) {
  EXPECT_EQ(Letters(FieldsOfStage(kLanguage, StageOf(0, 4, 0, 2), {})), "IP");
  EXPECT_EQ(Letters(FieldsOfStage(kLanguage, StageOf(0, 4, 1, 2), {})), "P");
  EXPECT_EQ(Letters(FieldsOfStage(kLanguage, StageOf(3, 4, 0, 2), {})), "P");
  EXPECT_EQ(Letters(FieldsOfStage(kLanguage, StageOf(3, 4, 1, 2), {})), "LP");
  for (const v1::Module module : {kLanguage, kVision}) {
    for (const uint32_t pp : {1u, 2u, 4u}) {
      for (const uint32_t parts : {1u, 2u, 3u}) {
        for (uint32_t rank = 0; rank < pp; ++rank) {
          BatchFields all = {false, false, false, false};
          for (uint32_t part = 0; part < parts; ++part) {
            const BatchFields each =
                FieldsOfStage(module, StageOf(rank, pp, part, parts), {});
            all.input_ids |= each.input_ids;
            all.labels |= each.labels;
            all.positions |= each.positions;
            all.pixels |= each.pixels;
          }
          TrainerPlace place;
          place.pp_rank = rank;
          EXPECT_EQ(FieldsOf(module, place, {1, pp, 1}), all);
        }
      }
    }
  }
}

TEST(RoleFieldsTest, PixelsReachLanguageProcessesOnlyIfColocated) {
  TrainerPlace place;
  EXPECT_TRUE(FeedsEncoders(place, true));
  EXPECT_FALSE(FeedsEncoders(place, false));
  place.pp_rank = 1;
  EXPECT_FALSE(FeedsEncoders(place, true));
}

TEST(RoleFieldsTest, ARankThatDoesNotExistIsNamed) {
  const ModuleLayout layout = {2, 4, 8};
  TrainerPlace place;
  place.tp_rank = 1;
  place.pp_rank = 3;
  place.cp_rank = 7;
  EXPECT_TRUE(CheckPlace(place, layout).ok());
  place.tp_rank = 2;
  EXPECT_THAT(CheckPlace(place, layout).message(),
              HasSubstr("2 tensor-parallel ranks; rank 2"));
  place.tp_rank = 0;
  place.pp_rank = 4;
  EXPECT_THAT(CheckPlace(place, layout).message(),
              HasSubstr("4 pipeline-parallel ranks; rank 4"));
  place.pp_rank = 0;
  place.cp_rank = 9;
  EXPECT_EQ(CheckPlace(place, layout).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ballast
