#include "trainer_shim/ballast_rank/report.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/time/time.h"
#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/synthetic_schedule.h"
#include "trainer_shim/ballast_rank/world.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// What vision ranks have decoded after a round.
JpegEngineCounts DecodedBy(uint32_t rank, int round) {
  JpegEngineCounts decoded;
  if (rank >= 2) return decoded;
  decoded.by_hardware = 3 * (round + 1);
  decoded.by_host = rank * (round + 1);
  decoded.bytes = uint64_t{1} << 20;
  decoded.busy = absl::Milliseconds(3.5);
  return decoded;
}

TEST(ReportTest, SumsPerRankAndModule) {
  v1::StepSchedule schedule;
  auto* columns = schedule.add_micro_batches();
  std::vector<v1::Role> roles;
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    auto* loads = columns->add_modules();
    loads->set_module(module);
    const double unit = module == v1::MODULE_VISION ? 1 : 0;
    for (const double load : {300, 100}) loads->add_load_before(unit * load);
    for (const double load : {210, 190}) loads->add_load_after(unit * load);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      roles.emplace_back().set_module(module);
      roles.back().set_dp_rank(rank);
    }
  }
  ManualClock clock;
  Report report(roles, &clock);
  for (int round = 0; round < 2; ++round) {
    for (uint32_t rank = 0; rank < roles.size(); ++rank) {
      PackedBatch batch;
      batch.role = roles[rank];
      batch.totals.samples = 8;
      batch.totals.images = 5 + rank % 2;
      batch.bytes_read = uint64_t{3} << 20;
      batch.bytes_moved = uint64_t{rank} << 19;
      clock.Advance(absl::Milliseconds(100));
      report.Add({rank, &batch, &schedule,
                  absl::Milliseconds(round == 0 ? 999 : 1 + rank),
                  DecodedBy(rank, round)});
    }
  }
  const std::string text = report.ToString(absl::Seconds(2));
  // rank, load before, load after, samples, images, read, moved.
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "vision +0 +600 +420 +16 +10 +6.0 MiB +0.0 MiB"));
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "vision +1 +200 +380 +16 +12 +6.0 MiB +1.0 MiB"));
  EXPECT_THAT(text, HasSubstr("vision: heaviest rank over mean of a "
                              "micro-batch: 1.500 before, 1.050 after\n"));
  EXPECT_THAT(text, HasSubstr("Heaviest rank over mean of a micro-batch, all "
                              "modules together: 1.500 before, 1.050 after."));
  EXPECT_LT(text.find("all modules together"), text.find("vision: heaviest"));
  EXPECT_THAT(text, ::testing::ContainsRegex("language +1 +0 +0 +16 +12"));
  // Nothing has a cost for the language module, so it has no heaviest rank.
  EXPECT_THAT(text, ::testing::Not(HasSubstr("language: heaviest")));
  // Samples of one module, not of both.
  EXPECT_THAT(text, HasSubstr("32 samples, 22 images in 2.00 s: "
                              "16.0 samples/s, 11.0 images/s\n"));
  // From the fourth batch to the eighth: 11 images and 12 MiB in 0.4 s.
  EXPECT_THAT(text, HasSubstr("the later half, in 0.40 s: 27.5 images/s, "
                              "30.0 MiB/s read; Next took 2.00 ms in the "
                              "median, 3.00 ms at p99, 4.00 ms at most\n"));
  // The last counts of each rank: 12 and 2 images in 7 ms.
  EXPECT_THAT(text, HasSubstr("images that travelled encoded: 12 decoded by "
                              "JPEG engines, 2 by the CPU; 2.0 MiB of files, "
                              "0.50 ms an image\n"));
}

TEST(BatchLineTest, NamesEveryKey) {
  PackedBatch batch;
  batch.step = 7;
  batch.micro_batch = 1;
  batch.role.set_module(v1::MODULE_LANGUAGE);
  batch.role.set_dp_rank(3);
  batch.samples.resize(2);
  batch.samples[0].name = "docs:5";
  batch.samples[1].name = "chat:9";
  batch.samples[1].placeholder = true;
  batch.totals.tokens = 10;
  batch.totals.padded_tokens = 12;
  batch.totals.images = 2;
  batch.totals.patches = 80;
  batch.bytes_read = 4096;
  batch.bytes_moved = 256;
  EXPECT_EQ(BatchLine(batch, absl::Milliseconds(2.5)),
            "{\"step\":7,\"micro_batch\":1,\"module\":\"language\","
            "\"dp_rank\":3,\"samples\":[\"docs:5\",\"chat:9\"],"
            "\"placeholders\":1,\"tokens\":10,\"padded_tokens\":12,"
            "\"images\":2,\"patches\":80,\"digest\":\"" +
                ComputeDigest(batch) +
                "\",\"bytes_read\":4096,\"bytes_moved\":256,"
                "\"next_ms\":2.5}");
}

TEST(BatchLineTest, NamesThePlaceOnlyIfAnyRankIsNotZero) {
  PackedBatch batch;
  EXPECT_EQ(BatchLine(batch, {}).find("_rank\":0,\"pp_rank"),
            std::string::npos);
  batch.place.cp_rank = 3;
  EXPECT_NE(
      BatchLine(batch, {}).find("\"tp_rank\":0,\"pp_rank\":0,\"cp_rank\":3"),
      std::string::npos);
}

TEST(BatchLineTest, NamesADummyImageOnlyIfThereIsOne) {
  PackedBatch batch;
  EXPECT_EQ(BatchLine(batch, {}).find("dummy_image"), std::string::npos);
  batch.dummy_image = true;
  EXPECT_NE(BatchLine(batch, {}).find("\"dummy_image\":true"),
            std::string::npos);
}

TEST(BatchLineTest, CountsVideosOnlyIfThereAreAny) {
  PackedBatch batch;
  EXPECT_EQ(BatchLine(batch, {}).find("videos"), std::string::npos);
  batch.totals.videos = 3;
  EXPECT_NE(BatchLine(batch, {}).find("\"videos\":3"), std::string::npos);
}

TEST(InterleavedLinesTest, OrderDoesNotDependOnRanksPace) {
  std::ostringstream out;
  InterleavedLines lines(3, &out);
  lines.Add(2, "c1");
  lines.Add(1, "b1");
  lines.Add(2, "c2");
  EXPECT_EQ(out.str(), "");
  lines.Add(0, "a1");
  EXPECT_EQ(out.str(), "a1\nb1\nc1\n");
  lines.Add(0, "a2");
  lines.Add(1, "b2");
  EXPECT_EQ(out.str(), "a1\nb1\nc1\na2\nb2\nc2\n");
}

using ::testing::ElementsAre;

std::string GetPath(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

// Runs every rank of `job` for two steps and appends what they get to a file.
void RunAndRecord(const SyntheticJob& job, const std::string& path) {
  const auto history = History::Open(path, "start 1");
  ASSERT_TRUE(history.ok()) << history.status();
  FakeLoader loader;
  loader.job = job;
  WorldOptions options;
  options.servers = {"fake:1"};
  options.steps = 2;
  const v1::Job message = SyntheticJobMessage(job);
  const auto roles = GetRoles(message, options);
  ASSERT_TRUE(roles.ok()) << roles.status();
  v1::Fingerprint fingerprint;
  fingerprint.set_hash(loader.fingerprint);
  const absl::Status end = RunWorld(
      message, fingerprint, *roles, options,
      [&](const std::string&) { return FakeLoaderClient(loader); },
      [&](const RankBatch& got) {
        EXPECT_TRUE((*history)->Add(*got.batch, got.next).ok());
      });
  EXPECT_TRUE(end.ok()) << end;
}

std::vector<nlohmann::json> GetLines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines.push_back(nlohmann::json::parse(line, nullptr, false));
    EXPECT_TRUE(lines.back().is_object()) << line;
  }
  return lines;
}

using Digests = std::map<std::pair<std::string, uint64_t>, std::string>;

// By module and position.
Digests GetDigests(const std::vector<nlohmann::json>& lines) {
  Digests digests;
  for (const auto& line : lines) {
    for (const auto& sample : line["samples"]) {
      digests[{line["module"], sample["position"]}] = sample["digest"];
    }
  }
  return digests;
}

TEST(HistoryTest, ALineABatch) {
  SyntheticJob job;
  job.vision_dp = 2;
  job.language_dp = 3;
  const std::string path = GetPath("lines");
  RunAndRecord(job, path);
  const auto lines = GetLines(path);
  std::set<std::string> places;
  for (const auto& line : lines) {
    std::vector<std::string> keys;
    for (const auto& item : line.items()) keys.push_back(item.key());
    EXPECT_THAT(keys, ElementsAre("dp_rank", "micro_batch", "module", "next_ms",
                                  "run", "samples", "step"));
    EXPECT_EQ(line["run"], "start 1");
    places.insert(line["step"].dump() + line["micro_batch"].dump() +
                  line["module"].dump() + line["dp_rank"].dump());
  }
  EXPECT_EQ(places.size(), lines.size());
  EXPECT_EQ(lines.size() % 5, 0);
  // A further run appends.
  RunAndRecord(job, path);
  EXPECT_EQ(GetLines(path).size(), 2 * lines.size());
}

TEST(HistoryTest, ASamplesDigestIsTheSameHoweverItCame) {
  SyntheticJob job;
  job.vision_dp = 2;
  job.language_dp = 4;
  job.delivery = v1::DELIVERY_EXCHANGE;
  RunAndRecord(job, GetPath("exchanged"));
  const Digests exchanged = GetDigests(GetLines(GetPath("exchanged")));
  job.delivery = v1::DELIVERY_DIRECT;
  RunAndRecord(job, GetPath("direct"));
  EXPECT_EQ(GetDigests(GetLines(GetPath("direct"))), exchanged);
  // Samples with content differ from each other.
  std::set<std::string> language;
  size_t samples = 0;
  for (const auto& [key, digest] : exchanged) {
    if (key.first != "language") continue;
    ++samples;
    language.insert(digest);
  }
  EXPECT_EQ(language.size(), samples);
}

TEST(HistoryTest, AFileThatCannotBeWrittenIsNamed) {
  const auto history = History::Open("/nowhere/file", "");
  EXPECT_EQ(history.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(history.status().message(), HasSubstr("--history /nowhere/file"));
}

}  // namespace
}  // namespace ballast
