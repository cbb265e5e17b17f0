// The preview of samples with videos, whose files `ffmpeg` makes.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/time/time.h"
#include "common/sha256.h"
#include "server/command/preview/sample_view.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "tests/integration/video_job.h"
#include "tests/server/video/made_videos.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

class VideoPreviewTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "SKIPPED: no program `ffmpeg`";
  }
};

TEST_P(VideoPreviewTest, ThePreviewShowsTheSampledFrames) {
  const LoadedConfig config = VideoConfig(GetParam(), "exchange");
  ASSERT_TRUE(IndexSources(config, {}).ok());
  const auto job = OpenJob(config);
  ASSERT_TRUE(job.ok()) << job.status();
  const SampleViewer viewer(&*job);
  for (const auto& [place, written] : VideoData().samples) {
    const auto position = viewer.FindSample(v1::SPLIT_TRAIN, place.first,
                                            place.second, absl::Seconds(60));
    ASSERT_TRUE(position.ok()) << position.status();
    const auto view = viewer.View(v1::SPLIT_TRAIN, *position);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->fault.empty(), !written.torn) << view->fault;
    ASSERT_EQ(view->videos.size(), written.videos.size());
    if (written.torn) continue;
    size_t crop = 0;
    for (; crop < written.images; ++crop) {
      EXPECT_FALSE(view->crops[crop].frame.has_value());
    }
    for (size_t i = 0; i < written.videos.size(); ++i) {
      const Json& wanted = InspectedVideo(GetParam(), written.videos[i]);
      EXPECT_EQ(view->videos[i].codec, wanted.value("codec", "pictures"));
      EXPECT_EQ(view->videos[i].frames, wanted["frames"]);
      std::vector<uint32_t> sampled = wanted["sampled"];
      // A list, of 2 pictures a second; its last one travels once.
      const bool is_list = !wanted.contains("codec");
      const double fps = is_list ? 2 : wanted["fps"].get<double>();
      if (is_list) sampled.resize(wanted["frames"].get<size_t>());
      for (size_t k = 0; k < sampled.size(); ++k, ++crop) {
        ASSERT_LT(crop, view->crops.size());
        const SampleView::Crop& shown = view->crops[crop];
        ASSERT_TRUE(shown.frame.has_value());
        EXPECT_EQ(shown.frame->video, i);
        EXPECT_EQ(shown.frame->number, sampled[k]);
        EXPECT_EQ(shown.frame->seconds, sampled[k] / fps);
        EXPECT_EQ(Sha256Hex(shown.pixels), wanted["frames_sha256"][k]);
      }
    }
    EXPECT_EQ(crop, view->crops.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, VideoPreviewTest,
                         ::testing::Values("qwen2_5_vl", "qwen3_vl"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace ballast
