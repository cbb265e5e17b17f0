// The whole path for videos, from files that `ffmpeg` makes to packed batches
// in every rank.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "client/ballastctl/query_client.h"
#include "common/sha256.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "tests/fakes/test_cluster.h"
#include "tests/integration/video_job.h"
#include "tests/server/media/video/made_videos.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr uint64_t kVideoSteps = 4;

class VideosTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "SKIPPED: no program `ffmpeg`";
  }

  bool IsQwen3() const { return std::string(GetParam()) == "qwen3_vl"; }
  const Json& Inspect(const Shown& shown) const {
    return InspectedVideo(GetParam(), shown);
  }
  const Written& At(const PackedSample& sample) const {
    return VideoData().samples.at(
        {sample.source == 0 ? "chat" : "tapes", sample.ordinal});
  }

  // Frames of the batch's videos from row `row` on, as before normalisation.
  std::vector<std::vector<uint8_t>> FramesAt(const PackedBatch& batch,
                                             size_t row,
                                             const Json& grid) const {
    const v1::Model& model = model_;
    const size_t p = model.patch(), m = model.merge(),
                 temporal = model.temporal_patch();
    const size_t t = grid[0], h = grid[1], w = grid[2];
    const size_t columns = 3 * temporal * p * p;
    const auto pixels = batch.Get<float>("pixel_values_videos");
    std::vector<std::vector<uint8_t>> frames(
        t * temporal, std::vector<uint8_t>(3 * h * p * w * p));
    for (size_t i = 0; i < t * h * w; ++i, ++row) {
      // Merge order: blocks of m*m patches.
      const size_t at = i % (h * w), block = at / (m * m), in = at % (m * m);
      const size_t y = block / (w / m) * m + in / m;
      const size_t x = block % (w / m) * m + in % m;
      for (size_t k = 0; k < columns; ++k) {
        const size_t channel = k / (temporal * p * p);
        const size_t frame = i / (h * w) * temporal + k / (p * p) % temporal;
        const size_t py = y * p + k / p % p, px = x * p + k % p;
        const float value = pixels[row * columns + k];
        frames[frame][3 * (py * w * p + px) + channel] =
            static_cast<uint8_t>(std::lround(
                (value * model.std(channel) + model.mean(channel)) * 255));
      }
    }
    return frames;
  }

  void CheckVision(const PackedBatch& batch) {
    size_t row = 0, video = 0, images = 0, segments = 0;
    for (const PackedSample& sample : batch.samples) {
      const Written& written = At(sample);
      EXPECT_EQ(sample.placeholder, written.torn) << sample.name;
      images += written.images;
      for (const Shown& shown : written.videos) {
        const Json& wanted = Inspect(shown);
        const Json& grid = wanted["grid_thw"];
        ASSERT_LT(video, batch.videos.num_videos());
        const auto found =
            absl::MakeConstSpan(batch.videos.vision.image_grid_thw)
                .subspan(3 * video, 3);
        EXPECT_EQ(grid, Json(std::vector<int64_t>(found.begin(), found.end())))
            << sample.name;
        EXPECT_EQ(batch.videos.second_per_grid_ts[video],
                  wanted["second_per_grid_ts"].get<float>());
        auto frames = FramesAt(batch, row, grid);
        const std::vector<std::string> hashes = wanted["frames_sha256"];
        // An odd last frame is repeated.
        EXPECT_LE(frames.size() - hashes.size(), model_.temporal_patch() - 1);
        for (size_t i = 0; i < frames.size(); ++i) {
          if (written.torn) {
            EXPECT_THAT(frames[i], ::testing::Each(frames[i][0]));
            continue;
          }
          EXPECT_EQ(Sha256Hex(frames[i]),
                    hashes[std::min(i, hashes.size() - 1)])
              << sample.name << " frame " << i;
        }
        row += grid[0].get<size_t>() * grid[1].get<size_t>() *
               grid[2].get<size_t>();
        segments += grid[0].get<size_t>();
        ++video;
      }
      seen_.insert(sample.name);
    }
    EXPECT_EQ(video, batch.videos.num_videos());
    EXPECT_EQ(row, batch.videos.rows());
    EXPECT_EQ(batch.videos.vision.cu_seqlens.size(), segments + 1);
    EXPECT_EQ(batch.totals.videos, video);
    EXPECT_EQ(batch.totals.images, images);
  }

  // What the model's processor writes for a video.
  std::string TextOfVideo(const Shown& shown) const {
    const Json& wanted = Inspect(shown);
    const uint64_t tokens = wanted["video_tokens"];
    if (!IsQwen3()) return absl::StrCat("[start][video*", tokens, "][end]");
    std::string text;
    for (const double second : wanted["seconds"]) {
      absl::StrAppendFormat(&text, "<%.1f seconds>[start][video*%d][end]",
                            second, tokens / wanted["grid_thw"][0].get<int>());
    }
    return text;
  }

  std::string WantedText(const Written& written) const {
    std::string question = written.question;
    for (const Shown& shown : written.videos) {
      const size_t mark = question.find("<video>");
      question.replace(mark, 7, TextOfVideo(shown));
    }
    // 90x60 pixels: 84x56 for patches of 14, 96x64 for those of 16.
    question =
        absl::StrReplaceAll(question, {{"<image>", "[start][image*6][end]"}});
    return absl::StrCat("[im_start]user\n", question,
                        "[im_end]\n[im_start]assistant\nA.[im_end]\n");
  }

  // As the authors' code computes them: text counts up, and continues after the
  // largest position of an image or a video. Qwen2.5 has 2 positions a second,
  // Qwen3 an image for each temporal patch.
  void CheckPositions(const PackedBatch& batch, size_t begin, size_t end,
                      const Written& written) const {
    const auto ids = batch.Get<int64_t>("input_ids");
    const auto positions = batch.Get<int64_t>("position_ids");
    const size_t all = ids.size();
    auto video = written.videos.begin();
    size_t run = 0;  // of the video
    int64_t next = 0;
    for (size_t at = begin; at < end;) {
      const int64_t id = ids[at];
      if (id != model_.token_ids().image() &&
          id != model_.token_ids().video()) {
        for (int axis = 0; axis < 3; ++axis) {
          ASSERT_EQ(positions[axis * all + at], next) << at - begin;
        }
        ++next;
        ++at;
        continue;
      }
      size_t t = 1, rows = 2, columns = 3;  // the image's
      float interval = 1;
      if (id == model_.token_ids().video()) {
        const Json& wanted = Inspect(*video);
        t = IsQwen3() ? 1 : wanted["grid_thw"][0].get<size_t>();
        rows = wanted["grid_thw"][1].get<size_t>() / 2;
        columns = wanted["grid_thw"][2].get<size_t>() / 2;
        if (!IsQwen3()) {
          interval = 2 * wanted["second_per_grid_ts"].get<float>();
        }
        if (!IsQwen3() || ++run == wanted["grid_thw"][0].get<size_t>()) {
          ++video;
          run = 0;
        }
      }
      ASSERT_LE(at + t * rows * columns, end);
      for (size_t i = 0; i < t * rows * columns; ++i, ++at) {
        ASSERT_EQ(ids[at], id);
        const float patch = static_cast<float>(i / (rows * columns));
        ASSERT_EQ(positions[at], next + static_cast<int64_t>(patch * interval));
        ASSERT_EQ(positions[all + at],
                  next + static_cast<int64_t>(i / columns % rows));
        ASSERT_EQ(positions[2 * all + at],
                  next + static_cast<int64_t>(i % columns));
      }
      next += std::max(static_cast<int64_t>(std::max(rows, columns)),
                       static_cast<int64_t>((t - 1) * interval) + 1);
    }
    EXPECT_EQ(video, written.videos.end());
  }

  void CheckLanguage(const PackedBatch& batch) {
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      const PackedSample& sample = batch.samples[i];
      const Written& written = At(sample);
      EXPECT_EQ(sample.placeholder, written.torn) << sample.name;
      const size_t begin = batch.text.cu_seqlens_padded[i];
      const size_t length =
          batch.text.cu_seqlens[i + 1] - batch.text.cu_seqlens[i];
      const auto ids = batch.Get<int64_t>("input_ids").subspan(begin, length);
      if (written.torn) {
        EXPECT_EQ(
            std::count(ids.begin(), ids.end(), model_.token_ids().video()),
            Inspect(written.videos[0])["video_tokens"].get<int64_t>());
        for (size_t k = 0; k < length; ++k) {
          EXPECT_EQ(batch.Get<float>("loss_mask")[begin + k], 0);
        }
        continue;
      }
      EXPECT_EQ(GetText(model_.token_ids(), ids), WantedText(written))
          << sample.name;
      CheckPositions(batch, begin, begin + length, written);
      // "A." and the end of the turn.
      const auto mask = batch.Get<float>("loss_mask").subspan(begin, length);
      EXPECT_EQ(std::count(mask.begin(), mask.end(), 1.0f), 3) << sample.name;
      seen_.insert(sample.name);
    }
  }

  TestCluster::Batches Run(const LoadedConfig& config, int servers) {
    const auto cluster = TestCluster::Start(config, servers);
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    if (!cluster.ok()) return {};
    auto batches = (*cluster)->RunRanks(0, kVideoSteps);
    EXPECT_TRUE(batches.ok()) << batches.status();
    status_ = *QueryClient((*cluster)->addresses()[0]).GetStatus();
    return batches.ok() ? *std::move(batches) : TestCluster::Batches();
  }

  // What the one server says that it has decoded.
  void CheckStatus(const TestCluster::Batches& batches) const {
    uint64_t videos = 0, frames = 0;
    for (const auto& [key, batch] : batches) {
      if (std::get<2>(key) != v1::MODULE_VISION) continue;
      for (const PackedSample& sample : batch.samples) {
        for (const Shown& shown : At(sample).videos) {
          if (At(sample).torn) continue;
          ++videos;
          const Json& inspected = Inspect(shown);
          // The last picture of a list travels once, though it is repeated.
          frames += std::min<uint64_t>(inspected["frames_sha256"].size(),
                                       inspected["frames"].get<uint64_t>());
        }
      }
    }
    // It has built some blocks ahead.
    EXPECT_GE(status_.videos().videos(), videos);
    EXPECT_GE(status_.videos().frames(), frames);
    EXPECT_GT(status_.videos().decode_seconds(), 0);
    EXPECT_GE(status_.videos().decoder_starts(), 1u);
    EXPECT_LE(status_.videos().decoder_starts(), 2u);  // serve.threads
    EXPECT_EQ(status_.videos().decoder_ends_size(), 0);
  }

  v1::Model model_;
  std::set<std::string> seen_;
  v1::GetStatusResponse status_;  // of the first server, after the last Run
};

TEST_P(VideosTest, BatchesHoldWhatInspectVideoSays) {
  const LoadedConfig config = VideoConfig(GetParam(), "exchange");
  model_ = config.config.model();
  const TestCluster::Batches batches = Run(config, 1);
  ASSERT_FALSE(batches.empty());
  for (const auto& [key, batch] : batches) {
    std::get<2>(key) == v1::MODULE_VISION ? CheckVision(batch)
                                          : CheckLanguage(batch);
  }
  EXPECT_EQ(seen_.size(), VideoData().samples.size());
  CheckStatus(batches);
  // Two servers, and another way, deliver the same.
  const TestCluster::Batches direct = Run(VideoConfig(GetParam(), "direct"), 2);
  ASSERT_EQ(direct.size(), batches.size());
  for (const auto& [key, batch] : batches) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(direct.at(key)));
  }
}

// What the data set is made for.
TEST_P(VideosTest, FilesAreOfManyKinds) {
  EXPECT_EQ(Inspect({"d.mkv"})["codec"], "hevc");
  EXPECT_EQ(Inspect({"e.mp4"})["codec"], "av1");
  EXPECT_EQ(Inspect({"b.webm"})["codec"], "vp9");
  EXPECT_EQ(Inspect({"c.mp4"})["codec"], "mpeg4");
  const Json& turned = Inspect({"turned.mp4"});
  EXPECT_EQ(turned["rotation"].get<int>() % 180, 90);
  EXPECT_GT(turned["resized_h"], turned["resized_w"]);
  EXPECT_GT(turned["width"], turned["height"]);
  EXPECT_EQ(Inspect({"odd.webm"})["width"], 121);
  EXPECT_EQ(Inspect({"odd.webm"})["height"], 91);
  EXPECT_EQ(Inspect({"uneven.mp4"})["variable_rate"], true);
  EXPECT_EQ(Inspect({"a.mp4"})["variable_rate"], false);
}

TEST_P(VideosTest, IndexAndScheduleKnowVideosBeforeAFrameIsDecoded) {
  const LoadedConfig config = VideoConfig(GetParam(), "exchange");
  IndexSourcesOptions rebuild;
  rebuild.rebuild = true;
  const auto indexed = IndexSources(config, rebuild);
  ASSERT_TRUE(indexed.ok()) << indexed.status();
  EXPECT_EQ(indexed->at(0).report.media[MediumKind::kVideo], 10u);
  EXPECT_EQ(indexed->at(0).report.media[MediumKind::kImage], 2u);
  ASSERT_EQ(indexed->at(0).report.bad.size(), 1u);
  EXPECT_THAT(indexed->at(0).report.bad[0].reason, HasSubstr("bad.mp4: "));
  EXPECT_EQ(indexed->at(1).report.media[MediumKind::kVideo], 3u);
  const auto job = OpenJob(config);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job->scheduler->job().model().has_video());
  const auto schedule = job->scheduler->Schedule(0);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  const v1::MicroBatchSchedule& columns = schedule->micro_batches(0);
  const auto vision = std::find_if(
      columns.modules().begin(), columns.modules().end(),
      [](const auto& each) { return each.module() == v1::MODULE_VISION; });
  ASSERT_NE(vision, columns.modules().end());
  uint64_t videos = 0;
  for (int i = 0; i < columns.position_size(); ++i) {
    const Written& written = VideoData().samples.at(
        {columns.source(i) == 0 ? "chat" : "tapes", columns.ordinal(i)});
    // An image has 6 tokens of 4 patches.
    double cost = written.images * (24 + 0.5 * 24 * 24);
    for (const Shown& shown : written.videos) {
      const Json& grid = Inspect(shown)["grid_thw"];
      const double t = grid[0],
                   m = grid[1].get<double>() * grid[2].get<double>();
      cost += t * m + 0.5 * t * m * m;
    }
    EXPECT_EQ(vision->cost(i), cost) << i;
    videos += written.videos.size();
  }
  EXPECT_EQ(columns.totals().videos(), videos);
  // Settings that do not carry videos.
  LoadedConfig refused = config;
  refused.config.mutable_model()->set_decode(v1::Model::DECODE_DEVICE);
  refused.config.mutable_model()->set_device_unchecked(true);
  EXPECT_THAT(std::string(OpenJob(refused).status().message()),
              HasSubstr("a source has videos, which model.decode: device"));
  LoadedConfig split = config;
  split.config.mutable_balance()->set_placement(v1::Balance::PLACEMENT_SPLIT);
  EXPECT_TRUE(OpenJob(split).ok());
  // Videos that are sampled otherwise are another job, and need another index.
  const LoadedConfig other = VideoConfig(GetParam(), "exchange", "fps: 1");
  EXPECT_EQ(OpenJob(other).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(IndexSources(other, {}).ok());
  const auto changed = OpenJob(other);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_NE(changed->scheduler->fingerprint().SerializeAsString(),
            job->scheduler->fingerprint().SerializeAsString());
}

INSTANTIATE_TEST_SUITE_P(Models, VideosTest,
                         ::testing::Values("qwen2_5_vl", "qwen3_vl"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace ballast
