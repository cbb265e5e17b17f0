// What an index of samples with videos depends on.

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/test_job.h"
#include "tests/server/video/made_videos.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

class VideoIndexTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "SKIPPED: no program `ffmpeg`";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  // Writes the only source, a line each.
  void Write(const std::string& lines) {
    std::ofstream(folder_ + "/chat.jsonl", std::ios::binary) << lines;
  }
  // A sample of one video, as the key `video` names it.
  static std::string Shows(const std::string& video) {
    return absl::StrCat("{\"video\": ", video,
                        R"(, "conversations": [{"from": "human", "value": )",
                        R"("<video>"}, {"from": "gpt", "value": "A."}]})",
                        "\n");
  }
  static LoadedConfig Config(const std::string& model,
                             const std::string& batch = "") {
    TestJob job;
    job.sources =
        "{name: chat, format: jsonl, path: chat.jsonl, media_root: ., index: "
        "chat.index}";
    job.model = absl::StrCat("min_pixels: 3136, max_pixels: 12544, ", model);
    job.batch = absl::StrCat("global: 2, micro: 2", batch);
    return ParseJob(job, folder_);
  }
  static SourceIndexing Index(const LoadedConfig& config) {
    const auto indexed = IndexSources(config, {});
    EXPECT_TRUE(indexed.ok()) << indexed.status();
    return indexed.ok() ? indexed->at(0) : SourceIndexing();
  }

  static inline const std::string folder_ =
      ::testing::TempDir() + "/video_index_test";
};

TEST_F(VideoIndexTest, ModelsOfOneRuleShareAnIndex) {
  MakeVideo("video_index_test/a.mp4", "64x48", "3",
            "-c:v libx264 -pix_fmt yuv420p");
  Write(Shows("\"a.mp4\""));
  const LoadedConfig qwen2 = Config("profile: qwen2_vl");
  const LoadedConfig qwen25 = Config("profile: qwen2_5_vl");
  EXPECT_EQ(Index(qwen2).report.samples, 1u);
  EXPECT_TRUE(Index(qwen25).was_fresh);
  EXPECT_TRUE(Index(qwen2).was_fresh);
  // They are two jobs all the same.
  const auto first = OpenJob(qwen2);
  const auto second = OpenJob(qwen25);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(first->scheduler->fingerprint().SerializeAsString(),
            second->scheduler->fingerprint().SerializeAsString());
  // Another rule writes another text and has other bounds.
  EXPECT_EQ(OpenJob(Config("profile: qwen3_vl, patch: 14")).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Index(Config("profile: qwen3_vl, patch: 14")).stale,
              HasSubstr("as it has videos, model.video"));
}

TEST_F(VideoIndexTest, AnIndexWithoutVideosDependsOnNoneOfTheirLimits) {
  std::ofstream(folder_ + "/x.jpg", std::ios::binary)
      << MakeJpeg({.width = 90, .height = 60});
  Write(R"({"image": "x.jpg", "conversations": [{"from": "human", "value": )"
        R"("<image>"}, {"from": "gpt", "value": "A."}]})"
        "\n");
  EXPECT_EQ(Index(Config("profile: qwen2_vl")).report.samples, 1u);
  EXPECT_TRUE(Index(Config("profile: qwen2_5_vl")).was_fresh);
  EXPECT_TRUE(Index(Config("profile: qwen2_5_vl, video: {fps: 1}")).was_fresh);
}

TEST_F(VideoIndexTest, SamplesLeftOutForTheirVideosAreFoundAnew) {
  MakeVideo("video_index_test/a.mp4", "112x112", "4",
            "-c:v libx264 -pix_fmt yuv420p");
  Write(Shows("\"a.mp4\""));
  const auto config = [](const std::string& frames) {
    return Config(absl::StrCat("profile: qwen2_5_vl, video: {min_pixels: 3136, "
                               "max_pixels: 12544, max_frames: ",
                               frames, "}"),
                  ", max_tokens: 60, on_too_long: skip");
  };
  // A pair of frames takes 16 tokens, and the text 12.
  const SourceIndexing too_long = Index(config("8"));
  EXPECT_EQ(too_long.report.samples, 0u);
  EXPECT_EQ(too_long.report.skipped, 1u);
  const SourceIndexing fits = Index(config("4"));
  EXPECT_FALSE(fits.was_fresh);
  EXPECT_EQ(fits.report.samples, 1u);
  EXPECT_EQ(fits.report.reused_files, 1u);
  EXPECT_EQ(Index(config("8")).report.samples, 0u);
}

TEST_F(VideoIndexTest, NamesWhatIsMissingByItsKind) {
  std::filesystem::create_directories(folder_ + "/clips");
  std::ofstream(folder_ + "/old.zip") << "PK";
  Write(absl::StrCat(Shows("\"gone.mp4\""), Shows("\"old/a.mp4\""),
                     Shows("\"https://x/a.mp4\""), Shows("\"a.zip/b.mp4\""),
                     R"({"image": "gone.jpg", "conversations": []})"));
  const IndexReport report = Index(Config("profile: qwen2_vl")).report;
  ASSERT_EQ(report.bad.size(), 5u);
  EXPECT_EQ(report.bad[0].kind, "video missing");
  EXPECT_THAT(report.bad[0].reason,
              HasSubstr("gone.mp4: cannot open: No such file or directory; the "
                        "path of a video starts at the source's media_root"));
  EXPECT_EQ(report.bad[1].kind, "video in a zip archive");
  EXPECT_EQ(report.bad[2].kind, "video is a URL");
  EXPECT_EQ(report.bad[3].kind, "video in a zip archive");
  EXPECT_EQ(report.bad[4].kind, "image missing");
  EXPECT_THAT(report.bad[4].reason, HasSubstr("the path of an image starts"));
}

}  // namespace
}  // namespace ballast
