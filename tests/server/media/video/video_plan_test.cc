#include "server/media/video/video_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/sha256.h"
#include "server/model/model_profile.h"
#include "server/model/model_videos.h"
#include "server/text/media_text.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using VideoKeys = v1::Model::Video;

std::string Digest(const std::string& text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  return Sha256Hex({bytes, text.size()}).substr(0, 16);
}

VideoModel GetModel(const nlohmann::json& vector) {
  VideoModel model = *FindVideoModel(vector.at("model").get<std::string>(),
                                     vector.at("sampling") == "own"
                                         ? VideoSampling::kOwn
                                         : VideoSampling::kTransformers);
  const nlohmann::json& limits = vector.at("limits");
  model.fps = limits.value("fps", 0.0);
  model.min_frames = limits.value("min_frames", 0u);
  model.max_frames = limits.value("max_frames", 0u);
  model.min_pixels = limits.value("min_pixels", uint64_t{0});
  model.max_pixels = limits.value("max_pixels", uint64_t{0});
  model.total_pixels = limits.value("total_pixels", uint64_t{0});
  model.cap_pixels_per_frame = limits.value("cap_pixels_per_frame", false);
  return model;
}

TEST(VideoPlanTest, EqualsQwenVlUtilsAndTransformers) {
  std::ifstream file(
      "tests/server/media/video/testdata/video_plan_vectors.json");
  const nlohmann::json vectors = nlohmann::json::parse(file);
  ASSERT_GT(vectors.size(), 1000u);
  for (const nlohmann::json& vector : vectors) {
    SCOPED_TRACE(vector.dump());
    const VideoModel model = GetModel(vector);
    VideoClip clip;
    if (vector.contains("start")) clip.start = vector["start"].get<double>();
    if (vector.contains("end")) clip.end = vector["end"].get<double>();
    const auto plan = PlanVideo(
        model, {vector["frames"].get<uint32_t>(), vector["fps"].get<double>()},
        vector["height"].get<uint32_t>(), vector["width"].get<uint32_t>(),
        clip);
    ASSERT_EQ(plan.ok(), !vector.contains("refused")) << plan.status();
    if (!plan.ok()) continue;
    ASSERT_EQ(plan->frames.size(), vector["count"].get<size_t>());
    EXPECT_EQ(Digest(absl::StrJoin(plan->frames, ",")), vector["indices"]);
    EXPECT_EQ(plan->height, vector["height_out"].get<uint32_t>());
    EXPECT_EQ(plan->width, vector["width_out"].get<uint32_t>());
    std::vector<std::string> seconds;
    for (const double second : plan->seconds) {
      seconds.push_back(absl::StrFormat("%.9f", second));
    }
    EXPECT_EQ(Digest(absl::StrJoin(seconds, ",")), vector["seconds"]);
    EXPECT_DOUBLE_EQ(plan->seconds_per_patch,
                     vector["seconds_per_patch"].get<double>());
    EXPECT_EQ(plan->seconds.size(), plan->grid_t);
  }
}

TEST(VideoPlanTest, ListsOfPicturesEqualQwenVlUtilsAndTransformers) {
  std::ifstream file(
      "tests/server/media/video/testdata/frame_list_vectors.json");
  const nlohmann::json vectors = nlohmann::json::parse(file);
  ASSERT_GE(vectors.size(), 240u);
  for (const nlohmann::json& vector : vectors) {
    SCOPED_TRACE(vector.dump());
    const auto plan = PlanFrameList(
        GetModel(vector), vector["count"].get<uint32_t>(),
        vector["fps"].get<double>(), vector["height"].get<uint32_t>(),
        vector["width"].get<uint32_t>());
    ASSERT_EQ(plan.ok(), !vector.contains("refused")) << plan.status();
    if (!plan.ok()) continue;
    EXPECT_EQ(plan->first_height, vector["first"][0].get<uint32_t>());
    EXPECT_EQ(plan->first_width, vector["first"][1].get<uint32_t>());
    EXPECT_EQ(plan->height, vector["height_out"].get<uint32_t>());
    EXPECT_EQ(plan->width, vector["width_out"].get<uint32_t>());
    EXPECT_DOUBLE_EQ(plan->seconds_per_patch,
                     vector["seconds_per_patch"].get<double>());
    const std::vector<double> seconds = vector["seconds"];
    ASSERT_EQ(plan->seconds.size(), seconds.size());
    for (size_t i = 0; i < seconds.size(); ++i) {
      EXPECT_DOUBLE_EQ(plan->seconds[i], seconds[i]);
    }
    EXPECT_EQ(plan->grid_t, seconds.size());
  }
}

TEST(VideoPlanTest, CountsTokensOfMergedPatches) {
  const auto plan =
      PlanVideo(*FindVideoModel("qwen2_5_vl"), {300, 30}, 480, 640);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->frames.size(), 20u);  // 10 s at 2 frames a second
  EXPECT_EQ(plan->grid_t, 10u);
  EXPECT_EQ(plan->height % 28 + plan->width % 28, 0u);
  EXPECT_EQ(plan->grid_h, plan->height / 14);
  EXPECT_EQ(plan->tokens,
            uint64_t{10} * (plan->height / 28) * (plan->width / 28));
}

TEST(VideoPlanTest, CountsTokensOfSquareFrames) {
  const auto one =
      PlanVideo(*FindVideoModel("llava_onevision"), {300, 30}, 480, 640);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->tokens, 20u * 196 + 1);
  const auto llava =
      PlanVideo(*FindVideoModel("llava_video"), {300, 30}, 480, 640);
  ASSERT_TRUE(llava.ok()) << llava.status();
  EXPECT_EQ(llava->tokens, 10u * 14 * 15);
}

TEST(VideoPlanTest, InternVlDrawsOneFrameOfEachInterval) {
  const VideoModel model = *FindVideoModel("internvl3");
  std::set<size_t> counts;
  std::set<std::vector<uint32_t>> drawn;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto plan = PlanVideo(model, {1000, 30}, 480, 640, {}, seed);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const size_t count = plan->frames.size();
    ASSERT_GE(count, 8u);
    ASSERT_LE(count, 32u);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_GE(plan->frames[i], i * 1000 / count);
      EXPECT_LT(plan->frames[i], (i + 1) * 1000 / count + 1);
    }
    EXPECT_EQ(plan->tokens, count * 256);
    counts.insert(count);
    drawn.insert(plan->frames);
    // The same sample has the same frames everywhere.
    EXPECT_EQ(PlanVideo(model, {1000, 30}, 480, 640, {}, seed)->frames,
              plan->frames);
  }
  EXPECT_EQ(counts.size(), 25u);
  EXPECT_EQ(drawn.size(), 200u);
}

TEST(VideoPlanTest, InternVlRepeatsTheLastFrameOfAShortVideo) {
  const auto plan =
      PlanVideo(*FindVideoModel("internvl3"), {3, 30}, 480, 640, {}, 7);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_GE(plan->frames.size(), 8u);
  EXPECT_EQ(plan->frames[0], 0u);
  EXPECT_EQ(plan->frames[1], 1u);
  for (size_t i = 2; i < plan->frames.size(); ++i) {
    EXPECT_EQ(plan->frames[i], 2u);
  }
}

TEST(VideoPlanTest, RefusesWithAdvice) {
  const VideoModel model = *FindVideoModel("qwen2_5_vl");
  EXPECT_THAT(PlanVideo(model, {1, 30}, 480, 640).status().message(),
              HasSubstr("wanted at least 2"));
  EXPECT_THAT(PlanVideo(model, {0, 30}, 480, 640).status().message(),
              HasSubstr("a video of 0 frames"));
  EXPECT_THAT(PlanVideo(model, {9, 30}, 0, 640).status().message(),
              HasSubstr("height 0"));
  EXPECT_THAT(
      PlanVideo(model, {300, 30}, 480, 640, {50.0, 60.0}).status().message(),
      HasSubstr("is it given in seconds"));
}

// LLaVA-Video's frames, times and tokens, beside a second writing of its
// training code (make_llava_video_vectors.py).

v1::Model LlavaVideo() {
  v1::Model model;
  model.set_profile("llava_video");
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  return model;
}

// The model with the limits of a vector.
v1::Model MakeLlavaVideo(const nlohmann::json& vector) {
  v1::Model model = LlavaVideo();
  VideoKeys& video = *model.mutable_video();
  const nlohmann::json& limits = vector.at("limits");
  video.set_fps(limits.value("fps", 0.0));
  video.set_max_frames(limits.value("max_frames", 0u));
  video.set_force_sample(limits.value("force_sample", false));
  video.set_time_instruction(true);
  VideoKeys::Pool pool;
  VideoKeys::Newline newline;
  EXPECT_TRUE(VideoKeys::Pool_Parse(
      absl::StrCat("POOL_",
                   absl::AsciiStrToUpper(vector.at("pool").get<std::string>())),
      &pool));
  EXPECT_TRUE(VideoKeys::Newline_Parse(
      absl::StrCat("NEWLINE_", absl::AsciiStrToUpper(
                                   vector.at("newline").get<std::string>())),
      &newline));
  video.set_pool(pool);
  video.set_newline(newline);
  return model;
}

StreamFacts VideoOf(uint32_t frames, double fps) {
  StreamFacts video = {};
  video.frames = frames;
  video.fps = fps;
  video.width = 320;
  video.height = 240;
  return video;
}

// 30 frames in the first second, then 15 half a second apart; the last ends
// after a thirtieth of a second.
std::vector<uint32_t> ManyThenFew() {
  std::vector<uint32_t> times;
  for (int i = 0; i < 30; ++i) {
    times.push_back(static_cast<uint32_t>(std::lround(i * 1e4 / 30)));
  }
  for (uint32_t i = 0; i < 15; ++i) times.push_back(10000 + i * 5000);
  times.push_back(80333);
  return times;
}

StreamFacts VariableVideo(const std::vector<uint32_t>& times) {
  StreamFacts video = VideoOf(static_cast<uint32_t>(times.size()) - 1, 30);
  video.flags = StreamFacts::kIsVariable | StreamFacts::kHasTimes;
  return video;
}

// 8.03 s at 2 frames a second, as many as qwen-vl-utils 0.0.14 takes with
// torchcodec.
TEST(VariableVideoTest, FramesOfVariableRateAreThoseOfTheirTimes) {
  const std::vector<uint32_t> times = ManyThenFew();
  const StreamFacts video = VariableVideo(times);
  const VideoModel model = *FindVideoModel("qwen3_vl");
  const auto plan = PlanIndexedVideo(model, video, times);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // round(linspace(0, 44, 16))
  EXPECT_THAT(plan->frames, ElementsAre(0, 3, 6, 9, 12, 15, 18, 21, 23, 26, 29,
                                        32, 35, 38, 41, 44));
  ASSERT_EQ(plan->seconds.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    const double first = times[plan->frames[2 * i]] / 1e4;
    const double last = times[plan->frames[2 * i + 1]] / 1e4;
    EXPECT_DOUBLE_EQ(plan->seconds[i], (first + last) / 2);
  }
  EXPECT_DOUBLE_EQ(plan->seconds[7], (6.5 + 8.0) / 2);
  EXPECT_NEAR(plan->seconds_per_patch, 2 * 8.0333 / 16, 1e-9);
  const StreamText text = TextOfVideo(model.rule, *plan, model.merge);
  EXPECT_THAT(text.before.back(), HasSubstr("<7.2 seconds>"));
  // Without them the plan is refused.
  EXPECT_EQ(PlanIndexedVideo(model, video).status().code(),
            absl::StatusCode::kInternal);
}

TEST(VariableVideoTest, AClipOfVariableRateHasTheFramesWithinIt) {
  const std::vector<uint32_t> times = ManyThenFew();
  StreamFacts video = VariableVideo(times);
  video.flags |= StreamFacts::kHasStart | StreamFacts::kHasEnd;
  const VideoModel model = *FindVideoModel("qwen3_vl");
  const auto ends = [&](double start, double end) {
    video.start = start;
    video.end = end;
    const auto plan = PlanIndexedVideo(model, video, times);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return std::pair(plan->frames.front(), plan->frames.back());
  };
  // Frame 32 begins at 2.0 s, frame 40 at 6.0 s.
  EXPECT_EQ(ends(2, 6), std::pair(32u, 40u));
  EXPECT_EQ(ends(1.9, 6.4), std::pair(32u, 40u));
  EXPECT_EQ(ends(2.1, 5.9), std::pair(33u, 39u));
  EXPECT_EQ(ends(0, 0.5), std::pair(0u, 15u));
  EXPECT_EQ(ends(7, 100), std::pair(42u, 44u));
  // 9 frames in 4.5 s are 2 a second: 8 of them, an even number.
  video.start = 2;
  video.end = 6;
  EXPECT_EQ(PlanIndexedVideo(model, video, times)->frames.size(), 8u);
  video.start = 2.1;
  video.end = 2.4;
  EXPECT_THAT(
      std::string(PlanIndexedVideo(model, video, times).status().message()),
      HasSubstr("has no two frames"));
}

TEST(VariableVideoTest, LlavaTellsTheTimesOfItsFrames) {
  v1::Model model = LlavaVideo();
  model.mutable_video()->set_max_frames(3);
  model.mutable_video()->set_force_sample(true);
  model.mutable_video()->set_time_instruction(true);
  const std::vector<uint32_t> times = ManyThenFew();
  const auto plan =
      PlanIndexedVideo(*GetVideoModel(model), VariableVideo(times), times);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->frames, ElementsAre(0, 22, 44));
  EXPECT_THAT(TextOfVideo(VideoRule::kLlava, *plan, 1).times,
              HasSubstr("lasts for 8.03 seconds, and 3 frames are uniformly "
                        "sampled from it. These frames are located at "
                        "0.00s,0.73s,8.00s."));
}

TEST(LlavaVideoTest, EqualsItsTrainingCode) {
  std::ifstream file(
      "tests/server/media/video/testdata/llava_video_vectors.json");
  const nlohmann::json vectors = nlohmann::json::parse(file);
  ASSERT_EQ(vectors.size(), 300u);
  for (const nlohmann::json& vector : vectors) {
    SCOPED_TRACE(vector.dump());
    const VideoModel model = *GetVideoModel(MakeLlavaVideo(vector));
    const auto plan = PlanIndexedVideo(
        model,
        VideoOf(vector["frames"].get<uint32_t>(), vector["fps"].get<double>()));
    ASSERT_EQ(plan.ok(), vector.contains("frames_taken")) << plan.status();
    if (!plan.ok()) continue;
    EXPECT_EQ(plan->frames.size(), vector["frames_taken"].get<size_t>());
    EXPECT_EQ(Digest(absl::StrJoin(plan->frames, ",")), vector["indices"]);
    EXPECT_EQ(plan->height, 384u);
    EXPECT_EQ(plan->width, 384u);
    EXPECT_EQ(plan->grid_h, 27u);
    EXPECT_EQ(plan->tokens, vector["rows"].get<uint64_t>());
    const StreamText text = TextOfVideo(model.rule, *plan, model.merge);
    EXPECT_EQ(text.runs, 1u);
    EXPECT_EQ(text.run_tokens, plan->tokens);
    const std::string wanted = vector["times"];
    EXPECT_EQ(wanted.size() == 16 ? Digest(text.times) : text.times, wanted);
  }
}

// The defaults are those of the training code's arguments; the checkpoint's
// line is that of docs/video.md.
TEST(LlavaVideoTest, SamplesAsItsArgumentsSay) {
  v1::Model model = LlavaVideo();
  const StreamFacts minutes = VideoOf(3600 * 30, 30);
  auto plan = PlanIndexedVideo(*GetVideoModel(model), minutes);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->frames.size(), 3600u);
  EXPECT_EQ(plan->tokens, 3600u * 14 * 15);
  EXPECT_EQ(TextOfVideo(VideoRule::kLlava, *plan, 1).times, "");
  model.mutable_video()->set_max_frames(64);
  model.mutable_video()->set_force_sample(true);
  model.mutable_video()->set_time_instruction(true);
  plan = PlanIndexedVideo(*GetVideoModel(model), VideoOf(3, 1.5));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->frames.size(), 64u);  // of 3, so they are repeated
  EXPECT_EQ(plan->frames.front(), 0u);
  EXPECT_EQ(plan->frames.back(), 2u);
  EXPECT_EQ(plan->tokens, 64u * 210);
  EXPECT_THAT(TextOfVideo(VideoRule::kLlava, *plan, 1).times,
              HasSubstr("lasts for 2.00 seconds, and 64 frames are"));
}

// It has no clips: a clip is a video of its own, also for its times.
TEST(LlavaVideoTest, AClipIsAVideoOfItsOwn) {
  v1::Model model = LlavaVideo();
  model.mutable_video()->set_time_instruction(true);
  StreamFacts clip = VideoOf(300, 30);
  clip.flags = StreamFacts::kHasStart | StreamFacts::kHasEnd;
  clip.start = 2;
  clip.end = 4;  // frames 60 to 120
  const auto plan = PlanIndexedVideo(*GetVideoModel(model), clip);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->frames, ElementsAre(60, 90, 120));
  EXPECT_THAT(TextOfVideo(VideoRule::kLlava, *plan, 1).times,
              HasSubstr("lasts for 2.03 seconds, and 3 frames are uniformly "
                        "sampled from it. These frames are located at "
                        "0.00s,1.00s,2.00s."));
}

TEST(LlavaVideoTest, RefusesWhatItDoesNotTake) {
  const auto fault = [](const v1::Model& model, const StreamFacts& video) {
    return std::string(
        PlanIndexedVideo(*GetVideoModel(model), video).status().message());
  };
  v1::Model model = LlavaVideo();
  StreamFacts list = VideoOf(8, 30);
  list.flags = StreamFacts::kIsList;
  EXPECT_THAT(fault(model, list), HasSubstr("LLaVA-Video does not take"));
  EXPECT_THAT(fault(model, VideoOf(8, 0.25)),
              HasSubstr("each round(0.25 / 1)-th frame, which is not a frame"));
  // Memory for a list of frames, whatever the configuration says.
  model.mutable_video()->set_max_frames(4'000'000'000u);
  model.mutable_video()->set_force_sample(true);
  EXPECT_THAT(fault(model, VideoOf(8, 30)),
              HasSubstr("wanted max_frames of at most 65536"));
  // A family of one's own has the model's rule with its own tiles.
  model = LlavaVideo();
  model.mutable_image_family()->set_tile(224);
  EXPECT_EQ(GetVideoModel(model)->frame_tokens, 8u * 9);
  model.mutable_image_family()->set_rule(v1::ImageFamily::RULE_CENTER_CROP);
  EXPECT_FALSE(GetVideoModel(model).has_value());
}

TEST(LlavaVideoTest, EachOptionIsPartOfThePlansKey) {
  const std::string key = VideoPlanKey(LlavaVideo());
  const auto changed = [&key](auto change) {
    v1::Model model = LlavaVideo();
    change(model.mutable_video());
    return VideoPlanKey(model) != key;
  };
  EXPECT_TRUE(changed([](VideoKeys* v) { v->set_force_sample(true); }));
  EXPECT_TRUE(changed([](VideoKeys* v) { v->set_time_instruction(true); }));
  EXPECT_TRUE(changed([](VideoKeys* v) { v->set_pool(VideoKeys::POOL_MAX); }));
  EXPECT_TRUE(
      changed([](VideoKeys* v) { v->set_newline(VideoKeys::NEWLINE_FRAME); }));
  EXPECT_FALSE(
      changed([](VideoKeys* v) { v->set_pool(VideoKeys::POOL_BILINEAR); }));
  EXPECT_FALSE(
      changed([](VideoKeys* v) { v->set_newline(VideoKeys::NEWLINE_GRID); }));
}

}  // namespace

}  // namespace ballast
