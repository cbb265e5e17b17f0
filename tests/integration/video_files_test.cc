// What an index of samples with videos depends on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/sha256.h"
#include "server/command/commands.h"
#include "server/command/preview/sample_view.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "server/model/model_videos.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/read_file.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"
#include "tests/integration/video_job.h"
#include "tests/server/media/video/made_videos.h"

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

// The preview of samples with videos, whose files `ffmpeg` makes.

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
    std::vector<SampleView::Stored> videos;
    for (const SampleView::Stored& stored : view->media) {
      if (stored.kind == MediumKind::kVideo) videos.push_back(stored);
    }
    ASSERT_EQ(videos.size(), written.videos.size());
    if (written.torn) continue;
    size_t crop = 0;
    for (; crop < written.images; ++crop) {
      EXPECT_FALSE(view->crops[crop].frame.has_value());
    }
    for (size_t i = 0; i < written.videos.size(); ++i) {
      const Json& wanted = InspectedVideo(GetParam(), written.videos[i]);
      EXPECT_EQ(videos[i].format, wanted.value("codec", "pictures"));
      EXPECT_EQ(videos[i].frames, wanted["frames"]);
      std::vector<uint32_t> sampled = wanted["sampled"];
      // A list, of 2 pictures a second; its last one travels once.
      const bool is_list = !wanted.contains("codec");
      const double fps = is_list ? 2 : wanted["fps"].get<double>();
      if (is_list) sampled.resize(wanted["frames"].get<size_t>());
      // The video of variable rate has each third picture up to number 39, then
      // all from number 41 on, of 30 a second; times are to 0.1 ms.
      const bool is_variable = wanted.value("variable_rate", false);
      const auto seconds = [&](uint32_t frame) {
        return is_variable ? (frame < 14 ? 3 * frame : frame + 27) / 30.0
                           : frame / fps;
      };
      for (size_t k = 0; k < sampled.size(); ++k, ++crop) {
        ASSERT_LT(crop, view->crops.size());
        const SampleView::Crop& shown = view->crops[crop];
        ASSERT_TRUE(shown.frame.has_value());
        EXPECT_EQ(shown.frame->video, i);
        EXPECT_EQ(shown.frame->number, sampled[k]);
        EXPECT_NEAR(shown.frame->seconds, seconds(sampled[k]),
                    is_variable ? 5.1e-5 : 0);
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

// A job over 500 damaged videos: each is listed with its reason when it is
// indexed, or replaced when it is decoded, and the others are trained on.

using ::testing::EndsWith;
constexpr uint64_t kDamaged = 500;
constexpr uint64_t kBatch = 32;

LoadedConfig ConfigIn(const std::string& folder) {
  TestJob job;
  job.sources =
      "{name: clips, format: jsonl, path: clips.jsonl, media_root: ., max_bad: "
      "1}";
  job.model =
      "profile: qwen2_5_vl, video: {max_frames: 4, min_frames: 2, "
      "min_pixels: 3136, max_pixels: 3136}";
  job.batch = absl::StrCat("global: ", kBatch, ", micro: ", kBatch);
  job.serve = ", max_bad_samples: 1000";
  return ParseJob(job, folder);
}

// What `inspect video` says of each file: `error` and no `sampled` if nothing
// can be planned, `error` beside a plan if the frames cannot be decoded.
std::vector<Json> Inspected(const std::vector<std::string>& files) {
  InspectVideoOptions options;
  options.model = *FindVideoModel("qwen2_5_vl");
  options.model.min_frames = 2;
  options.model.max_frames = 4;
  options.model.min_pixels = options.model.max_pixels = 3136;
  std::stringstream out;
  (void)InspectVideos(options, files, out);
  std::vector<Json> lines;
  for (std::string line; std::getline(out, line);) {
    lines.push_back(Json::parse(line));
  }
  return lines;
}

TEST(DamagedVideosTest, FiveHundredEndWithAReasonAndTheRestIsServed) {
  if (!HasFfmpeg()) GTEST_SKIP() << "SKIPPED: no program `ffmpeg`";
  const std::string folder = ::testing::TempDir() + "/damaged_videos";
  std::filesystem::create_directories(folder);
  const std::vector<std::string> sound = MakeVideosToDamage();
  std::mt19937_64 random(23);
  std::vector<std::string> files;
  std::ofstream lines(folder + "/clips.jsonl");
  for (uint64_t i = 0; i < kDamaged + sound.size(); ++i) {
    const std::string bytes = ReadFile(sound[i % sound.size()]);
    files.push_back(absl::StrCat(folder, "/", i, ".mp4"));
    std::ofstream(files.back(), std::ios::binary)
        << (i < kDamaged ? Damaged(bytes, &random) : bytes);
    lines << "{\"video\": \"" << i << ".mp4\", \"conversations\": [{\"from\": "
          << "\"human\", \"value\": \"<video>\"}, {\"from\": \"gpt\", "
          << "\"value\": \"A.\"}]}\n";
  }
  lines.close();
  const std::vector<Json> inspected = Inspected(files);
  ASSERT_EQ(inspected.size(), files.size());

  const LoadedConfig config = ConfigIn(folder);
  const auto indexed = IndexSources(config, {});
  ASSERT_TRUE(indexed.ok()) << indexed.status();
  const IndexReport& report = indexed->at(0).report;
  std::vector<uint64_t> kept;  // lines, by the sample's number in the index
  std::map<std::string, int> reasons;
  size_t bad = 0;
  for (uint64_t i = 0; i < files.size(); ++i) {
    SCOPED_TRACE(inspected[i].dump());
    if (inspected[i].contains("sampled")) {
      kept.push_back(i);
      continue;
    }
    ASSERT_LT(bad, report.bad.size());
    const BadSample& listed = report.bad[bad++];
    EXPECT_EQ(listed.key, absl::StrCat(i + 1));
    const std::string error = inspected[i]["error"];
    EXPECT_FALSE(error.empty());
    EXPECT_THAT(listed.reason, EndsWith(error));
    ++reasons[error.substr(0, error.find_first_of(":;0123456789"))];
  }
  EXPECT_EQ(report.bad.size(), bad);
  EXPECT_EQ(report.samples, kept.size());
  EXPECT_GT(reasons.size(), 3u);
  for (const auto& [reason, count] : reasons) {
    std::cout << "index: " << count << " x " << reason << "\n";
  }

  // Each kept sample comes once in an epoch.
  const auto cluster = TestCluster::Start(config, 1);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const uint64_t steps = (kept.size() + kBatch - 1) / kBatch;
  const auto batches = (*cluster)->RunRanks(0, steps);
  ASSERT_TRUE(batches.ok()) << batches.status();
  std::set<uint64_t> seen;
  std::set<uint64_t> replaced;
  for (const auto& [key, batch] : *batches) {
    for (const PackedSample& sample : batch.samples) {
      ASSERT_LT(sample.ordinal, kept.size());
      const uint64_t line = kept[sample.ordinal];
      EXPECT_EQ(sample.placeholder, inspected[line].contains("error"))
          << inspected[line].dump();
      seen.insert(line);
      if (sample.placeholder) replaced.insert(line);
    }
  }
  EXPECT_EQ(seen.size(), kept.size());
  for (uint64_t i = kDamaged; i < files.size(); ++i) {
    EXPECT_TRUE(seen.contains(i) && !replaced.contains(i)) << files[i];
  }
  std::cout << bad << " bad when indexed, " << replaced.size()
            << " replaced when decoded, " << seen.size() - replaced.size()
            << " trained on\n";
  EXPECT_GT(bad, 50u);
  EXPECT_GT(replaced.size(), 20u);
}

}  // namespace
}  // namespace ballast
