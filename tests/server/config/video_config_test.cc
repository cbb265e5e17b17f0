// model.video as the configuration gives it. faults.txt has what is refused.

#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"

namespace ballast {
namespace {

using Video = v1::Model::Video;

v1::Model ModelOf(const std::string& model) {
  const auto loaded = ParseConfig(
      absl::StrCat(
          "sources: [{name: docs, format: webdataset, path: 'docs-*.tar'}]\n"
          "batch: {global: 8, micro: 4}\n"
          "topology: {modules: {vision: {dp: 2}, language: {}}}\n"
          "model: {",
          model, "}\n"),
      "F", "/etc/ballast");
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? loaded->config.model() : v1::Model();
}

TEST(VideoConfigTest, ReadsEveryKey) {
  const Video utils =
      ModelOf(
          "video: {sampling: qwen_vl_utils, fps: 1.5, min_frames: 6, "
          "max_frames: 64, min_pixels: 3136, max_pixels: 200704, "
          "total_pixels: 10000000}")
          .video();
  EXPECT_EQ(utils.sampling(), Video::SAMPLING_QWEN_VL_UTILS);
  EXPECT_EQ(utils.fps(), 1.5);
  EXPECT_EQ(utils.min_frames(), 6u);
  EXPECT_EQ(utils.max_frames(), 64u);
  EXPECT_EQ(utils.min_pixels(), 3136u);
  EXPECT_EQ(utils.max_pixels(), 200704u);
  EXPECT_EQ(utils.total_pixels(), 10000000u);
  EXPECT_FALSE(utils.cap_pixels_per_frame());
  const Video by_class =
      ModelOf(
          "profile: qwen3_vl, video: {sampling: transformers, "
          "cap_pixels_per_frame: true}")
          .video();
  EXPECT_EQ(by_class.sampling(), Video::SAMPLING_TRANSFORMERS);
  EXPECT_TRUE(by_class.cap_pixels_per_frame());
}

TEST(VideoConfigTest, WhatIsLeftOutIsTheRulesDefault) {
  EXPECT_FALSE(ModelOf("profile: qwen2_vl").has_video());
  const Video one = ModelOf("video: {max_frames: 9}").video();
  EXPECT_EQ(one.max_frames(), 9u);
  EXPECT_EQ(one.fps(), 0);
  EXPECT_EQ(one.min_frames(), 0u);
  EXPECT_EQ(one.max_pixels(), 0u);
}

TEST(VideoConfigTest, InternVlTakesTheKeysOfItsRules) {
  const std::string intern = "profile: internvl3, tokenizer: t.json, video: ";
  EXPECT_EQ(ModelOf(absl::StrCat(intern, "{min_frames: 4, max_frames: 16}"))
                .video()
                .max_frames(),
            16u);
  EXPECT_EQ(ModelOf(absl::StrCat(intern, "{sampling: transformers, fps: 1}"))
                .video()
                .fps(),
            1);
}

TEST(VideoConfigTest, LlavaOneVisionTakesFramesASecond) {
  const Video video =
      ModelOf(
          "profile: llava_onevision, tokenizer: t.json, video: {fps: 1, "
          "max_frames: 32}")
          .video();
  EXPECT_EQ(video.fps(), 1);
  EXPECT_EQ(video.max_frames(), 32u);
}

// Its images are LLaVA-OneVision's; docs/video.md has this line.
TEST(VideoConfigTest, LlavaVideoTakesItsTrainingCodesArguments) {
  const v1::Model model = ModelOf(
      "profile: llava_video, tokenizer: t.json, video: {max_frames: 64, "
      "force_sample: true, time_instruction: true, pool: average, newline: "
      "one_token}");
  const Video& video = model.video();
  EXPECT_EQ(video.max_frames(), 64u);
  EXPECT_TRUE(video.force_sample());
  EXPECT_TRUE(video.time_instruction());
  EXPECT_EQ(video.pool(), Video::POOL_AVERAGE);
  EXPECT_EQ(video.newline(), Video::NEWLINE_ONE_TOKEN);
  EXPECT_EQ(model.chat_template(), "llava_video");
  EXPECT_EQ(model.image_family().name(), "llava_onevision");
  EXPECT_EQ(model.mean(0), 0.5);
}

}  // namespace
}  // namespace ballast
