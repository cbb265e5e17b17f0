// What a configured model makes of videos.

#include "server/video/model_videos.h"

#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/model_profile.h"

namespace ballast {
namespace {

v1::Model ModelOf(const std::string& profile) {
  v1::Model model;
  model.set_profile(profile);
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  return model;
}

TEST(VideoPlanKeyTest, IsThatOfTheRuleAndItsLimits) {
  const std::string key = VideoPlanKey(ModelOf("qwen2_5_vl"));
  EXPECT_EQ(VideoPlanKey(ModelOf("qwen2_vl")), key);
  EXPECT_NE(VideoPlanKey(ModelOf("qwen3_vl")), key);
  EXPECT_EQ(VideoPlanKey(ModelOf("qwen3_vl")),
            VideoPlanKey(ModelOf("qwen3_5_vl")));
  // The default, by its name.
  v1::Model named = ModelOf("qwen2_5_vl");
  named.mutable_video()->set_sampling(v1::Model::Video::SAMPLING_QWEN_VL_UTILS);
  EXPECT_EQ(VideoPlanKey(named), key);
  const std::function<void(v1::Model*)> changes[] = {
      [](v1::Model* m) {
        m->mutable_video()->set_sampling(
            v1::Model::Video::SAMPLING_TRANSFORMERS);
      },
      [](v1::Model* m) { m->mutable_video()->set_fps(0.1); },
      [](v1::Model* m) { m->mutable_video()->set_min_frames(2); },
      [](v1::Model* m) { m->mutable_video()->set_max_frames(2); },
      [](v1::Model* m) { m->mutable_video()->set_min_pixels(2); },
      [](v1::Model* m) {
        m->mutable_video()->set_max_pixels(uint64_t{1} << 40);
      },
      [](v1::Model* m) { m->mutable_video()->set_total_pixels(2); },
      [](v1::Model* m) { m->mutable_video()->set_cap_pixels_per_frame(true); },
      [](v1::Model* m) { m->set_patch(15); },
      [](v1::Model* m) { m->set_merge(3); },
      [](v1::Model* m) { m->set_temporal_patch(1); },
  };
  for (const auto& change : changes) {
    v1::Model changed = ModelOf("qwen2_5_vl");
    change(&changed);
    EXPECT_NE(VideoPlanKey(changed), key) << changed.DebugString();
  }
}

TEST(VideoPlanKeyTest, TellsNumbersApartThatAgreeInSixDigits) {
  v1::Model a = ModelOf("qwen2_5_vl");
  a.mutable_video()->set_fps(2);
  a.mutable_video()->set_max_pixels(12845056);
  v1::Model b = a;
  b.mutable_video()->set_fps(2.0000001);
  EXPECT_NE(VideoPlanKey(a), VideoPlanKey(b));
  b = a;
  b.mutable_video()->set_max_pixels(12845057);
  EXPECT_NE(VideoPlanKey(a), VideoPlanKey(b));
}

TEST(PlanIndexedVideoTest, AListHasAllItsPicturesOnce) {
  IndexedVideo list = {};
  list.flags = IndexedVideo::kIsList;
  list.frames = 5;
  list.width = 130;
  list.height = 90;
  const auto model = VideoModelOf(ModelOf("qwen2_5_vl"));
  auto plan = PlanIndexedVideo(*model, list);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->frames, ::testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(plan->grid_t, 3u);
  EXPECT_EQ(plan->seconds_per_patch, 1);  // 2 pictures a second
  // As images of multiples of 56.
  EXPECT_EQ(plan->first_height, 112u);
  EXPECT_EQ(plan->first_width, 112u);
  list.sample_fps = 0.5;
  plan = PlanIndexedVideo(*model, list);
  EXPECT_EQ(plan->seconds_per_patch, 4);
}

}  // namespace
}  // namespace ballast
