#include "trainer_shim/ballast_rank/report.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/synthetic_schedule.h"
#include "trainer_shim/ballast_rank/world.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
