// Two servers of one job whose files hold different samples of equal size: what
// they would schedule is the same, and what ranks would train on is not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/loader_client.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "server/serve/service/server.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/shared_dir.h"
#include "tests/fakes/test_cluster.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSamples = 16;

// Lines of equal length, each with a text of its own.
std::vector<std::string> Samples() {
  std::vector<std::string> lines;
  for (int i = 0; i < kSamples; ++i) {
    lines.push_back(
        absl::StrCat(R"({"messages": [{"role": "user", "content": "What is )",
                     10 + i, R"(?"}, {"role": "assistant", "content": "It is )",
                     10 + i, R"(."}]})"));
  }
  return lines;
}

class SameContentTest : public ::testing::Test {
 protected:
  SameContentTest() {
    char folder[] = "/tmp/ballast-test-XXXXXX";
    EXPECT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  ~SameContentTest() override { std::filesystem::remove_all(folder_); }

  std::string Address(int server) const {
    return absl::StrCat("unix:", folder_, "/", server, ".sock");
  }

  // Server `server` of two, over a file of its own with these samples.
  std::unique_ptr<LoaderServer> Start(int server,
                                      const std::vector<std::string>& samples) {
    const std::string data = absl::StrCat(folder_, "/", server);
    std::filesystem::create_directories(data);
    std::ofstream file(data + "/chat.jsonl");
    for (const std::string& line : samples) file << line << "\n";
    file.close();
    const auto config = ParseConfig(
        absl::StrCat(
            "sources: [{name: chat, format: jsonl, path: chat.jsonl}]\n"
            "model: {profile: qwen2_5_vl}\n"
            "batch: {global: 4, micro: 4}\n"
            "topology:\n"
            "  modules: {language: {dp: 2}}\n"
            "  servers:\n"
            "    - {address: '",
            Address(0),
            "', ranks: {language: '0'}}\n"
            "    - {address: '",
            Address(1),
            "', ranks: {language: '1'}}\n"
            "serve: {threads: 1, memory: 16MiB, listen: ['",
            Address(server), "']}\n"),
        "test.yaml", data);
    EXPECT_TRUE(config.ok()) << config.status();
    EXPECT_TRUE(IndexSources(*config, {}).ok());
    auto job = OpenJob(*config);
    EXPECT_TRUE(job.ok()) << job.status();
    auto started = LoaderServer::Start(*std::move(job), &clock_);
    EXPECT_TRUE(started.ok()) << started.status();
    return *std::move(started);
  }

  // What the server says to a tool; blocks until it refuses ranks.
  static std::string AwaitRefusal(LoaderClient* client) {
    std::string refusal;
    while (refusal.empty()) {
      const auto attached = client->Attach({}, {});
      EXPECT_TRUE(attached.ok()) << attached.status();
      if (attached.ok()) refusal = attached->refusal();
    }
    return refusal;
  }

  std::string folder_;
  ManualClock clock_;
};

v1::Role LanguageRank(uint32_t rank) {
  v1::Role role;
  role.set_module(v1::MODULE_LANGUAGE);
  role.set_dp_rank(rank);
  return role;
}

TEST_F(SameContentTest, TwoSwappedSamplesOfEqualLengthAreFoundOut) {
  std::vector<std::string> swapped = Samples();
  std::swap(swapped[2], swapped[5]);
  ASSERT_EQ(swapped[2].size(), swapped[5].size());
  const auto first = Start(0, Samples());
  clock_.AwaitSleepers(1);  // it asks again later: the second is not there yet
  const auto second = Start(1, swapped);
  const auto first_client = LoaderClient::Create(Address(0));
  const auto second_client = LoaderClient::Create(Address(1));
  const std::string second_why = AwaitRefusal(second_client.get());
  clock_.Advance(absl::Seconds(1));
  const std::string first_why = AwaitRefusal(first_client.get());
  for (const std::string& why : {first_why, second_why}) {
    EXPECT_THAT(why, AllOf(HasSubstr("first differing key: index.chat is "),
                           HasSubstr(Address(0)), HasSubstr(Address(1))));
  }
  for (LoaderClient* client : {first_client.get(), second_client.get()}) {
    for (const uint32_t rank : {0, 1}) {
      EXPECT_EQ(client->Attach(LanguageRank(rank), {}).status().code(),
                absl::StatusCode::kFailedPrecondition);
    }
  }
  // All that a schedule tells of the samples is the same at both.
  const auto schedules = {first_client->GetSchedule(0),
                          second_client->GetSchedule(0)};
  for (const auto& schedule : schedules) {
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(schedule->micro_batches(0).SerializeAsString(),
              (*schedules.begin())->micro_batches(0).SerializeAsString());
  }
}

TEST_F(SameContentTest, ServersOfTheSameSamplesServeWhereverTheFilesLie) {
  const auto first = Start(0, Samples());
  const auto second = Start(1, Samples());
  const auto first_client = LoaderClient::Create(Address(0));
  const auto second_client = LoaderClient::Create(Address(1));
  const auto attached = first_client->Attach(LanguageRank(0), {});
  ASSERT_TRUE(attached.ok()) << attached.status();
  const auto same =
      second_client->Attach(LanguageRank(1), attached->fingerprint());
  EXPECT_TRUE(same.ok()) << same.status();
}

// Indexes, serves and packs real photographs and conversations, if the folder
// with them is there.

TEST(SharedCorpusTest, IndexesServesAndPacksTheCorpus) {
  constexpr char kSamples[] = "corpus/samples.jsonl";
  const std::optional<std::string> shared = SharedDirWith(kSamples);
  if (!shared) GTEST_SKIP() << NotShared(kSamples);
  const std::string corpus = *shared + "/corpus";
  const auto config = ParseConfig(
      absl::StrCat("sources: [{name: photos, format: jsonl, path: '", corpus,
                   "/samples.jsonl', media_root: '", corpus, "', index: '",
                   ::testing::TempDir(), "/photos.index'}]\n",
                   "model: {profile: qwen2_5_vl, max_pixels: 1003520}\n"
                   "batch: {global: 64, micro: 16, max_tokens: 16384}\n"
                   "topology: {modules: {vision: {dp: 4}, language: {dp: 4}}}\n"
                   "serve: {threads: 2, memory: 512MiB}\n"),
      "test.yaml", ::testing::TempDir());
  ASSERT_TRUE(config.ok()) << config.status();
  auto cluster = TestCluster::Start(*config);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto batches = (*cluster)->RunRanks(0, 1);
  ASSERT_TRUE(batches.ok()) << batches.status();
  // One step is one epoch of the 64 samples, which refer to 79 images (counted
  // in the file).
  std::set<uint64_t> vision, language;
  uint64_t images = 0;
  for (const auto& [key, batch] : *batches) {
    const bool is_vision = std::get<2>(key) == v1::MODULE_VISION;
    for (const PackedSample& sample : batch.samples) {
      EXPECT_FALSE(sample.placeholder) << sample.name;
      (is_vision ? vision : language).insert(sample.ordinal);
    }
    if (is_vision) images += batch.vision.image_grid_thw.size() / 3;
  }
  EXPECT_EQ(vision.size(), 64u);
  EXPECT_EQ(language.size(), 64u);
  EXPECT_EQ(images, 79u);
}

}  // namespace
}  // namespace ballast
