#include "server/video/video_plan.h"

#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/sha256.h"
#include "server/video/model_videos.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

std::string Digest(const std::string& text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  return Sha256Hex({bytes, text.size()}).substr(0, 16);
}

VideoModel ModelOf(const nlohmann::json& vector) {
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
  std::ifstream file("tests/server/video/testdata/video_plan_vectors.json");
  const nlohmann::json vectors = nlohmann::json::parse(file);
  ASSERT_GT(vectors.size(), 1000u);
  for (const nlohmann::json& vector : vectors) {
    SCOPED_TRACE(vector.dump());
    const VideoModel model = ModelOf(vector);
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
  std::ifstream file("tests/server/video/testdata/frame_list_vectors.json");
  const nlohmann::json vectors = nlohmann::json::parse(file);
  ASSERT_GE(vectors.size(), 240u);
  for (const nlohmann::json& vector : vectors) {
    SCOPED_TRACE(vector.dump());
    const auto plan = PlanFrameList(
        ModelOf(vector), vector["count"].get<uint32_t>(),
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

}  // namespace
}  // namespace ballast
