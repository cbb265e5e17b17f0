// Videos of InternVL, from files that `ffmpeg` makes to packed batches in every
// rank: frames are tiles, as `inspect video` has them.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "server/command/commands.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "server/model/model_videos.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"
#include "tests/integration/video_job.h"
#include "tests/server/media/video/made_videos.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kInternSteps = 3;
constexpr size_t kSide = 448;

// The samples, in order.
std::vector<Written> InternSamples() {
  VideoClip clip;
  clip.start = 0.5;
  clip.end = 2.5;
  return {
      {"<video>\nWhat?", {{"a.mp4", {}}}},
      {"See <image>, <video> and <video>.", {{"b.webm", {}}, {"c.mp4", {}}}, 1},
      {"Words."},
      {"<image>", {}, 1},
      {"<video>", {{"a.mp4", {}}}, 0, true},
      {"<video>Q", {{"a.mp4", clip}}},
      {"<video> before <image> and <video>.",
       {{"c.mp4", {}}, {"a.mp4", {}}},
       1}};
}

// For each mark of a question, whether it is a video's.
std::vector<bool> GetMarks(const std::string& question) {
  std::vector<bool> marks;
  for (size_t at = question.find('<'); at != question.npos;
       at = question.find('<', at + 1)) {
    marks.push_back(question.compare(at, 7, "<video>") == 0);
  }
  return marks;
}

void WriteSamples() {
  const auto line = [](const std::string& media, const std::string& question) {
    return absl::StrCat("{", media, media.empty() ? "" : ", ",
                        R"("conversations": [{"from": "human", "value": ")",
                        question, R"("}, {"from": "gpt", "value": "A."}]})",
                        "\n");
  };
  std::ofstream(VideoData().folder + "/intern.jsonl")
      << line(R"("video": "a.mp4")", R"(<video>\nWhat?)")
      << line(R"("image": "x.jpg", "videos": ["b.webm", "c.mp4"])",
              "See <image>, <video> and <video>.")
      << line("", "Words.") << line(R"("image": "x.jpg")", "<image>")
      << line(R"("video": "torn.mp4")", "<video>")
      << R"({"messages": [{"role": "user", "content": [)"
      << R"({"type": "video", "video": "a.mp4", "start": 0.5, "end": 2.5},)"
      << R"( {"type": "text", "text": "Q"}]}, {"role": "assistant",)"
      << R"( "content": "A."}]})"
      << "\n"
      << line(R"("image": "x.jpg", "videos": ["c.mp4", "a.mp4"])",
              "<video> before <image> and <video>.");
}

struct Rule {
  const char* name;
  VideoSampling sampling;
  const char* limits;
};

LoadedConfig GetConfig(const Rule& rule, const std::string& delivery) {
  TestJob job;
  job.sources = absl::StrCat(
      "{name: chat, format: jsonl, path: intern.jsonl, media_root: ., "
      "index: 'intern.",
      rule.name, ".index'}");
  job.model = absl::StrCat(
      "profile: internvl3, rules: transformers, tokenizer: '",
      std::filesystem::absolute(
          "tests/server/text/testdata/family_chats.tokenizer.json")
          .string(),
      "', token_ids: {end_of_text: 7}, video: {", rule.limits, "}");
  job.batch = "global: 8, micro: 8, max_tokens: 8192";
  job.balance = absl::StrCat("delivery: ", delivery,
                             ", cost: {vision: {linear: 1, quadratic: 0.5}}");
  LoadedConfig config = ParseJob(job, VideoData().folder);
  config.config.mutable_serve()->set_memory(uint64_t{512} << 20);
  return config;
}

class InternVideosTest : public ::testing::TestWithParam<Rule> {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "SKIPPED: no program `ffmpeg`";
    VideoData();
    WriteSamples();
  }

  const Json& Inspect(const Shown& shown) {
    Json& known = inspected_[absl::StrCat(shown.file, " ",
                                          shown.clip.start.value_or(-1))];
    if (!known.is_null()) return known;
    InspectVideoOptions options;
    options.model = *FindVideoModel("internvl3", GetParam().sampling);
    if (GetParam().sampling == VideoSampling::kOwn) {
      options.model.min_frames = 3;
    }
    options.model.max_frames = 6;
    options.clip = shown.clip;
    std::ostringstream out;
    const std::string file = VideoData().folder + "/" + shown.file;
    EXPECT_TRUE(InspectVideos(options, {file}, out).ok()) << out.str();
    return known = Json::parse(out.str());
  }

  // Crop `crop` of a batch as before normalisation.
  std::vector<uint8_t> CropOf(const PackedBatch& batch, size_t crop) const {
    const size_t plane = kSide * kSide;
    std::vector<uint8_t> rgb(3 * plane);
    const float* const from =
        batch.Get<float>("pixel_values").data() + crop * 3 * plane;
    for (size_t i = 0; i < rgb.size(); ++i) {
      const size_t channel = i / plane;
      rgb[3 * (i % plane) + channel] = static_cast<uint8_t>(std::lround(
          (from[i] * model_.std(channel) + model_.mean(channel)) * 255));
    }
    return rgb;
  }

  void CheckVision(const PackedBatch& batch) {
    EXPECT_TRUE(batch.Get<float>("pixel_values_videos").empty());
    EXPECT_FALSE(batch.videos.listed);
    EXPECT_TRUE(batch.crops.tiles);
    size_t crop = 0, item = 0, videos = 0;
    for (const PackedSample& sample : batch.samples) {
      const Written& written = samples_[sample.ordinal];
      EXPECT_EQ(sample.placeholder, written.torn);
      size_t video = 0;
      for (const bool is_video : GetMarks(written.question)) {
        if (!is_video) {
          ASSERT_EQ(batch.crops.crops_per_image.at(item), 7);
          crop += batch.crops.crops_per_image[item++];
          continue;
        }
        const Shown& shown = written.videos.at(video++);
        const std::vector<std::string> hashes = Inspect(shown)["frames_sha256"];
        ASSERT_LT(item, batch.crops.crops_per_image.size());
        ASSERT_EQ(batch.crops.crops_per_image[item++], hashes.size());
        for (const std::string& hash : hashes) {
          const std::vector<uint8_t> rgb = CropOf(batch, crop++);
          if (written.torn) {
            EXPECT_THAT(rgb, ::testing::Each(128));
          } else {
            EXPECT_EQ(Sha256Hex(rgb), hash) << sample.name;
          }
        }
        ++videos;
      }
      seen_.insert(sample.ordinal);
    }
    EXPECT_EQ(item + batch.dummy_image, batch.crops.crops_per_image.size());
    EXPECT_EQ(crop + batch.dummy_image, batch.crops.num_crops());
    EXPECT_EQ(batch.totals.videos, videos);
    EXPECT_EQ(batch.totals.images + videos, item);
  }

  // A sample's ids as text; runs of placeholders as "[N]".
  std::string GetText(absl::Span<const int64_t> ids,
                      const Tokenizer& tokenizer) const {
    std::string text;
    for (size_t i = 0; i < ids.size();) {
      size_t n = 1;
      if (ids[i] == model_.token_ids().image()) {
        while (i + n < ids.size() && ids[i + n] == ids[i]) ++n;
        absl::StrAppend(&text, "[", n, "]");
      } else {
        EXPECT_TRUE(
            tokenizer.Decode({static_cast<int32_t>(ids[i])}, &text).ok());
      }
      i += n;
    }
    return text;
  }

  std::string WantedText(const Written& written) {
    std::string question = written.question;
    size_t video = 0;
    const auto put = [&](const std::string& mark, std::string text) {
      // The template writes a line feed behind images and videos.
      question.replace(question.find(mark), mark.size(), text += "\n");
    };
    for (const bool is_video : GetMarks(written.question)) {
      if (!is_video) {
        // 90x60 pixels: 3x2 tiles, and all of it once more.
        put("<image>", absl::StrCat("<img>[", 7 * 256, "]</img>"));
        continue;
      }
      const Shown& shown = written.videos.at(video++);
      std::string frames;
      for (size_t i = 0; i < Inspect(shown)["sampled"].size(); ++i) {
        absl::StrAppend(&frames, i > 0 ? "\n" : "", "Frame", i + 1,
                        ": <img>[256]</img>");
      }
      put("<video>", frames);
    }
    return absl::StrCat("<|im_start|>user\n", question,
                        "<|im_end|>\n<|im_start|>assistant\nA.<|im_end|>\n");
  }

  void CheckLanguage(const PackedBatch& batch, const Tokenizer& tokenizer) {
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      const PackedSample& sample = batch.samples[i];
      const Written& written = samples_[sample.ordinal];
      EXPECT_EQ(sample.placeholder, written.torn);
      const size_t begin = batch.text.cu_seqlens_padded[i];
      const size_t length =
          batch.text.cu_seqlens[i + 1] - batch.text.cu_seqlens[i];
      const auto ids = batch.Get<int64_t>("input_ids").subspan(begin, length);
      for (size_t k = 0; k < length; ++k) {
        ASSERT_EQ(batch.Get<int64_t>("position_ids")[begin + k], k);
      }
      if (written.torn) {
        EXPECT_EQ(
            std::count(ids.begin(), ids.end(), model_.token_ids().image()),
            Inspect(written.videos[0])["video_tokens"].get<int64_t>());
        continue;
      }
      EXPECT_EQ(GetText(ids, tokenizer), WantedText(written));
      seen_.insert(sample.ordinal);
    }
  }

  const std::vector<Written> samples_ = InternSamples();
  v1::Model model_;
  std::set<uint64_t> seen_;
  std::map<std::string, Json> inspected_;
};

TEST_P(InternVideosTest, BatchesHoldWhatInspectVideoSays) {
  TestCluster::Batches batches[2];
  int next = 0;
  for (const char* delivery : {"exchange", "direct"}) {
    const LoadedConfig config = GetConfig(GetParam(), delivery);
    const auto cluster = TestCluster::Start(config, next + 1);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    auto run = (*cluster)->RunRanks(0, kInternSteps);
    ASSERT_TRUE(run.ok()) << run.status();
    batches[next++] = *std::move(run);
  }
  const auto job = OpenJob(GetConfig(GetParam(), "exchange"));
  ASSERT_TRUE(job.ok()) << job.status();
  model_ = job->scheduler->job().model();
  EXPECT_TRUE(model_.has_video());
  for (const auto& [key, batch] : batches[0]) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(batches[1].at(key)));
    std::get<2>(key) == v1::MODULE_VISION
        ? CheckVision(batch)
        : CheckLanguage(batch, *job->tokenizer);
  }
  EXPECT_EQ(seen_.size(), samples_.size());
}

TEST_P(InternVideosTest, IndexAndScheduleKnowVideosBeforeAFrameIsDecoded) {
  const LoadedConfig config = GetConfig(GetParam(), "exchange");
  IndexSourcesOptions rebuild;
  rebuild.rebuild = true;
  const auto indexed = IndexSources(config, rebuild);
  ASSERT_TRUE(indexed.ok()) << indexed.status();
  ASSERT_EQ(indexed->at(0).report.samples, samples_.size());
  EXPECT_TRUE(indexed->at(0).report.bad.empty());
  const auto job = OpenJob(config);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto schedule = job->scheduler->Schedule(0);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  const v1::MicroBatchSchedule& columns = schedule->micro_batches(0);
  // A frame is 32x32 patches, and so is a tile.
  constexpr double kTile = 1024 + 0.5 * 1024 * 1024;
  const auto vision = std::find_if(
      columns.modules().begin(), columns.modules().end(),
      [](const auto& each) { return each.module() == v1::MODULE_VISION; });
  ASSERT_NE(vision, columns.modules().end());
  uint64_t videos = 0;
  for (int i = 0; i < columns.position_size(); ++i) {
    const Written& written = samples_[columns.ordinal(i)];
    size_t tiles = 7 * written.images;
    for (const Shown& shown : written.videos) {
      tiles += Inspect(shown)["sampled"].size();
    }
    EXPECT_EQ(vision->cost(i), tiles * kTile) << i;
    videos += written.videos.size();
  }
  EXPECT_EQ(columns.totals().videos(), videos);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, InternVideosTest,
    ::testing::Values(Rule{"own", VideoSampling::kOwn,
                           "min_frames: 3, max_frames: 6"},
                      Rule{"transformers", VideoSampling::kTransformers,
                           "sampling: transformers, max_frames: 6"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ballast
