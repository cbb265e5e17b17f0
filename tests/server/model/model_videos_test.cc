#include "server/model/model_videos.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/model/model_profile.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::SizeIs;

v1::Model ModelOf(const std::string& profile) {
  v1::Model model;
  model.set_profile(profile);
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  return model;
}

// 10 seconds.
StreamFacts Video() {
  StreamFacts video = {};
  video.fps = 30;
  video.frames = 300;
  video.width = 320;
  video.height = 240;
  video.key_frames = 2;
  return video;
}

TEST(ModelVideosTest, OnlySomeModelsTakeVideos) {
  for (const char* profile :
       {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5_vl", "internvl3",
        "llava_onevision", "llava_video"}) {
    EXPECT_TRUE(GetVideoModel(ModelOf(profile)).has_value()) << profile;
  }
  for (const char* profile : {"llava_next", "gemma3", "glm4v"}) {
    EXPECT_FALSE(GetVideoModel(ModelOf(profile)).has_value()) << profile;
  }
  EXPECT_FALSE(GetVideoModel(v1::Model()).has_value());
  // A family of one's own, though it has the name.
  v1::Model other = ModelOf("internvl3");
  other.mutable_image_family()->set_rule(v1::ImageFamily::RULE_CENTER_CROP);
  EXPECT_FALSE(GetVideoModel(other).has_value());
}

TEST(ModelVideosTest, LimitsAreTheConfigurations) {
  v1::Model model = ModelOf("qwen3_vl");
  v1::Model::Video& given = *model.mutable_video();
  given.set_sampling(v1::Model::Video::SAMPLING_TRANSFORMERS);
  given.set_fps(3);
  given.set_min_frames(5);
  given.set_max_frames(7);
  given.set_min_pixels(11);
  given.set_max_pixels(13);
  given.set_total_pixels(17);
  given.set_cap_pixels_per_frame(true);
  const VideoModel video = *GetVideoModel(model);
  EXPECT_EQ(video.sampling, VideoSampling::kTransformers);
  EXPECT_EQ(video.fps, 3);
  EXPECT_EQ(video.min_frames, 5u);
  EXPECT_EQ(video.max_frames, 7u);
  EXPECT_EQ(video.min_pixels, 11u);
  EXPECT_EQ(video.max_pixels, 13u);
  EXPECT_EQ(video.total_pixels, 17u);
  EXPECT_TRUE(video.cap_pixels_per_frame);
  EXPECT_EQ(video.patch, 16u);
  EXPECT_EQ(video.merge, 2u);
  EXPECT_EQ(video.temporal, 2u);
  EXPECT_FALSE(video.frames_are_crops);
}

// 20 frames, 2 a second, each a tile of `tile` pixels a side.
void ExpectTiles(const VideoPlan& plan, uint32_t tile) {
  EXPECT_EQ(plan.frames.size(), 20u);
  EXPECT_EQ(plan.grid_t, 20u);
  EXPECT_EQ(plan.height, tile);
  EXPECT_EQ(plan.width, tile);
  EXPECT_EQ(plan.grid_h, tile / 14);
}

// A frame is one tile of the family, whatever its size.
TEST(ModelVideosTest, FramesOfInternVlAreTiles) {
  v1::Model model = ModelOf("internvl3");
  model.mutable_video()->set_sampling(v1::Model::Video::SAMPLING_TRANSFORMERS);
  for (const uint32_t tile : {448u, 224u}) {
    model.mutable_image_family()->set_tile(tile);
    const VideoModel video = *GetVideoModel(model);
    EXPECT_TRUE(video.frames_are_crops);
    const auto plan = PlanIndexedVideo(video, Video());
    ASSERT_TRUE(plan.ok()) << plan.status();
    ExpectTiles(*plan, tile);
    EXPECT_EQ(plan->tokens, 20u * (tile / 28) * (tile / 28));
  }
}

// A frame is a tile, pooled to half its sides; a newline ends the video.
TEST(ModelVideosTest, FramesOfLlavaOneVisionArePooled) {
  v1::Model model = ModelOf("llava_onevision");
  for (const auto& [tile, tokens] : {std::pair(384u, 196u), {224u, 64u}}) {
    model.mutable_image_family()->set_tile(tile);
    const VideoModel video = *GetVideoModel(model);
    EXPECT_FALSE(video.frames_are_crops);
    const auto plan = PlanIndexedVideo(video, Video());
    ASSERT_TRUE(plan.ok()) << plan.status();
    ExpectTiles(*plan, tile);
    EXPECT_EQ(plan->tokens, 20u * tokens + 1);
    EXPECT_EQ(plan->seconds_per_patch, 0.5);
  }
  // Pictures of a list are frames.
  StreamFacts list = {};
  list.flags = StreamFacts::kIsList;
  list.frames = 3;
  list.width = 30;
  list.height = 20;
  const auto plan = PlanIndexedVideo(*GetVideoModel(model), list);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->frames, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(plan->tokens, 3 * 64u + 1);
}

// 8 to 32 frames, one of each interval; the same for the same video.
TEST(ModelVideosTest, InternVlDrawsByTheVideosFacts) {
  const VideoModel model = *GetVideoModel(ModelOf("internvl3"));
  std::set<std::vector<uint32_t>> drawn;
  for (uint32_t i = 0; i < 50; ++i) {
    StreamFacts video = Video();
    video.frames += i;
    const auto plan = PlanIndexedVideo(model, video);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_THAT(plan->frames, SizeIs(AllOf(Ge(8u), Le(32u))));
    EXPECT_EQ(plan->frames, PlanIndexedVideo(model, video)->frames);
    drawn.insert(plan->frames);
  }
  EXPECT_THAT(drawn, SizeIs(50));
}

TEST(ModelVideosTest, EachFactMovesTheSeed) {
  std::set<uint64_t> seeds = {SeedOfVideo(Video())};
  const auto add = [&seeds](auto change) {
    StreamFacts video = Video();
    change(&video);
    seeds.insert(SeedOfVideo(video));
  };
  add([](StreamFacts* v) { ++v->frames; });
  add([](StreamFacts* v) { ++v->width; });
  add([](StreamFacts* v) { ++v->height; });
  add([](StreamFacts* v) { std::swap(v->width, v->height); });
  add([](StreamFacts* v) { ++v->key_frames; });
  add([](StreamFacts* v) { v->fps = 29.97; });
  add([](StreamFacts* v) { v->start = 1; });
  add([](StreamFacts* v) { v->end = 1; });
  EXPECT_THAT(seeds, SizeIs(9));
}

TEST(ModelVideosTest, ClipAndRateOfTheSampleHold) {
  v1::Model model = ModelOf("qwen2_vl");
  const VideoModel video = *GetVideoModel(model);
  StreamFacts clip = Video();
  clip.flags = StreamFacts::kHasStart | StreamFacts::kHasEnd;
  clip.start = 2;
  clip.end = 4;
  auto plan = PlanIndexedVideo(video, clip);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // Frames 60 to 120: 2 a second of 61 frames at 30 are 4.
  EXPECT_THAT(plan->frames, ElementsAre(60, 80, 100, 120));
  clip.sample_fps = 3;  // 6.1, made even
  plan = PlanIndexedVideo(video, clip);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->frames, ElementsAre(60, 72, 84, 96, 108, 120));
  clip.flags = 0;  // the whole video
  plan = PlanIndexedVideo(video, clip);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->frames.size(), 30u);
}

TEST(ModelVideosTest, RefusesPlansThatNoScheduleHolds) {
  v1::Model model = ModelOf("qwen2_vl");
  model.mutable_video()->set_max_frames(1 << 20);
  model.mutable_video()->set_fps(1000);
  model.mutable_video()->set_min_pixels(uint64_t{1} << 24);
  model.mutable_video()->set_max_pixels(uint64_t{1} << 24);
  StreamFacts video = Video();
  video.frames = 1 << 20;
  EXPECT_THAT(
      std::string(
          PlanIndexedVideo(*GetVideoModel(model), video).status().message()),
      HasSubstr("wanted at most 2^32-1"));
  // Seconds between patches that a float has only as infinity.
  video = Video();
  video.fps = std::numeric_limits<double>::denorm_min();
  EXPECT_FALSE(
      PlanIndexedVideo(*GetVideoModel(ModelOf("qwen2_vl")), video).ok());
}

TEST(ModelVideosTest, AnIndexKeepsTheFactsAsShown) {
  VideoFacts facts;
  facts.codec = "a codec with a long name";
  facts.width = 320;
  facts.height = 240;
  facts.rotation = 90;
  facts.fps = 12.5;
  facts.is_variable = true;
  facts.table.is_timed = true;
  facts.table.frames.resize(5);
  for (uint32_t i = 0; i < 5; ++i) {
    facts.table.frames[i].packet = i;
    facts.table.frames[i].start = i < 3 ? 0 : 3;
  }
  const StreamFacts video = GetIndexedVideo(facts);
  EXPECT_EQ(video.width, 240u);
  EXPECT_EQ(video.height, 320u);
  EXPECT_EQ(video.rotation, 90u);
  EXPECT_EQ(video.fps, 12.5);
  EXPECT_EQ(video.frames, 5u);
  EXPECT_EQ(video.key_frames, 2u);
  EXPECT_EQ(video.flags, StreamFacts::kIsVariable);
  EXPECT_EQ(video.times(), 0u);
  facts.times = {0, 100, 300, 400, 1000, 1100};
  EXPECT_EQ(GetIndexedVideo(facts).times(), facts.times.size());
  EXPECT_EQ(std::string(video.codec, sizeof(video.codec)), "a codec with a l");
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

TEST(PlanIndexedVideoTest, InternVlTakesNoLists) {
  StreamFacts list = Video();
  list.flags = StreamFacts::kIsList;
  EXPECT_THAT(PlanIndexedVideo(*GetVideoModel(ModelOf("internvl3")), list)
                  .status()
                  .message(),
              HasSubstr("give them as images"));
}

TEST(PlanIndexedVideoTest, AListHasAllItsPicturesOnce) {
  StreamFacts list = {};
  list.flags = StreamFacts::kIsList;
  list.frames = 5;
  list.width = 130;
  list.height = 90;
  const auto model = GetVideoModel(ModelOf("qwen2_5_vl"));
  auto plan = PlanIndexedVideo(*model, list);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->frames, ElementsAre(0, 1, 2, 3, 4));
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
