// A job over 500 damaged videos: each is listed with its reason when it is
// indexed, or replaced when it is decoded, and the others are trained on.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/command/commands.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "server/video/model_videos.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"
#include "tests/server/video/damaged_bytes.h"
#include "tests/server/video/made_videos.h"

namespace ballast {
namespace {

using ::testing::EndsWith;
using Json = nlohmann::json;

constexpr uint64_t kDamaged = 500;
constexpr uint64_t kBatch = 32;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

LoadedConfig ConfigIn(const std::string& folder) {
  TestJob job;
  job.sources =
      "{name: clips, format: jsonl, path: clips.jsonl, media_root: .}";
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
    const std::string bytes = ReadAll(sound[i % sound.size()]);
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
