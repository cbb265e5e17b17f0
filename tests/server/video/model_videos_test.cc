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
      [](v1::Model* m) { m->mutable_video()->set_fps(2.0000001); },
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

}  // namespace
}  // namespace ballast
