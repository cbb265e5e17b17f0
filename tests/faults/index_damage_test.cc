// An index with damaged bytes on the disk, and the parts of an index that a
// server reads.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/ballastctl/query_client.h"
#include "client/loader_client.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "tests/fakes/old_index.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSamples = 60'000;
// Page size as in docs/index_format.md; the head takes less than a page.
constexpr uint64_t kPage = 4096;
constexpr uint64_t kRecord = 56;

class IndexDamageTest : public ::testing::Test {
 protected:
  IndexDamageTest() {
    std::ofstream lines(folder_ + "/text.jsonl");
    for (uint64_t i = 0; i < kSamples; ++i) {
      lines << R"({"conversations": [{"from": "gpt", "value": "line )" << i
            << "\"}]}\n";
    }
    lines.close();
    TestJob job;
    job.sources =
        "{name: text, format: jsonl, path: text.jsonl, index: text.index}";
    job.model = "profile: qwen2_5_vl";
    job.batch = "global: 4, micro: 4";
    job.modules = "language: {dp: 2}";
    job.serve = ", prefetch_steps: 1";
    config_ = ParseJob(job, folder_);
    EXPECT_TRUE(IndexSources(config_, {}).ok());
  }

  std::string IndexPath() const { return folder_ + "/text.index"; }

  // The pages that hold the records of a step's samples.
  std::set<uint64_t> PagesOf(const Scheduler& scheduler, uint64_t step) {
    std::set<uint64_t> pages;
    const auto schedule = scheduler.Schedule(step);
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    for (const auto& micro_batch : schedule->micro_batches()) {
      for (const uint64_t ordinal : micro_batch.ordinal()) {
        pages.insert(1 + ordinal * kRecord / kPage);
        pages.insert(1 + (ordinal * kRecord + kRecord - 1) / kPage);
      }
    }
    return pages;
  }

  void Damage(uint64_t at) {
    std::fstream file(IndexPath(),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put('\x7f');
  }

  const std::string folder_ = TestFolder();
  LoadedConfig config_;
};

// Bytes of the file at `path` in this process's memory.
uint64_t ResidentBytes(const std::string& path) {
  const std::string name = std::filesystem::canonical(path);
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  uint64_t bytes = 0;
  while (std::getline(maps, line)) {
    if (line.find('-') < line.find(' ')) inside = absl::StrContains(line, name);
    if (inside && absl::StartsWith(line, "Rss:")) {
      bytes += 1024 * std::strtoull(line.c_str() + 4, nullptr, 10);
    }
  }
  return bytes;
}

TEST_F(IndexDamageTest, AServerReadsOnlyTheIndexPagesOfItsSteps) {
  ASSERT_GT(std::filesystem::file_size(IndexPath()), 3'000'000u);
  const auto cluster = TestCluster::Start(config_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  // The system also maps neighbours of a page that are in memory already: 64
  // KiB around it and the rest of that read-ahead. This bounds both for one
  // page.
  constexpr uint64_t kAround = 128 << 10;
  ASSERT_GT(ResidentBytes(IndexPath()), 0u);
  EXPECT_LE(ResidentBytes(IndexPath()), kAround);
  const auto got = (*cluster)->RunRanks(0, 1);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->size(), 2u);
  // The head, the checksums, and 4 samples of this step and of each of the few
  // steps that server and ranks prefetch.
  EXPECT_LE(ResidentBytes(IndexPath()), (1 + 1 + 4 * 4) * kAround);
}

// The job ends: no content of the index is guessed, and no sample is left out
// or replaced.
TEST_F(IndexDamageTest, EndsAJobAtADamagedIndexPage) {
  const auto job = OpenJob(config_);
  ASSERT_TRUE(job.ok()) << job.status();
  constexpr uint64_t kBad = 5;
  std::set<uint64_t> before;
  for (uint64_t step = 0; step < kBad; ++step) {
    before.merge(PagesOf(*job->scheduler, step));
  }
  std::set<uint64_t> pages = PagesOf(*job->scheduler, kBad);
  for (const uint64_t page : before) pages.erase(page);
  ASSERT_FALSE(pages.empty());
  const uint64_t page = *pages.begin();
  Damage(page * kPage + 1000);

  const auto cluster = TestCluster::Start(config_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto good = (*cluster)->RunRanks(0, kBad);
  EXPECT_TRUE(good.ok()) << good.status();
  const absl::Status status = (*cluster)->RunRanks(kBad - 2, 5).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat(
                  IndexPath(), ": damaged index: bytes ", page * kPage, " to ",
                  page * kPage + kPage - 1, " are not what was written")));
  const auto told = QueryClient((*cluster)->addresses()[0]).GetStatus();
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->bad_samples_size(), 0);
}

// As after `cp other.index text.index`: another index, whole in itself, in the
// same file. No step is served by it, and none once the first is back is lost.
TEST_F(IndexDamageTest, ServesNothingByAnIndexThatChangedUnderIt) {
  const auto cluster = TestCluster::Start(config_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::string address = (*cluster)->addresses()[0];
  const auto client = LoaderClient::Create(address);
  const auto before = (*cluster)->RunRanks(0, 2);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_TRUE(client->CheckHealth().ok());

  std::stringstream stream;
  stream << std::ifstream(IndexPath(), std::ios::binary).rdbuf();
  const std::string first = stream.str();
  const auto time = std::filesystem::last_write_time(IndexPath());
  std::string other = first;
  // The same samples in another order.
  for (uint64_t i = 0; i < kSamples / 2; ++i) {
    char* const front = other.data() + kPage + i * kRecord;
    std::swap_ranges(front, front + kRecord,
                     other.data() + kPage + (kSamples - 1 - i) * kRecord);
  }
  SealIndex(&other);
  ASSERT_NE(other, first);
  const auto write_over = [&](const std::string& bytes) {
    std::fstream(IndexPath(), std::ios::in | std::ios::out | std::ios::binary)
        << bytes;
  };
  write_over(other);
  // Steps that were scheduled before are not built by it either.
  for (const uint64_t step : {uint64_t{2}, uint64_t{100}}) {
    const absl::Status status = (*cluster)->RunRanks(step, 2).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("the index has changed under this server"));
  }
  while (client->CheckHealth().ok()) std::this_thread::yield();

  // Restored, as by `cp --preserve`.
  write_over(first);
  std::filesystem::last_write_time(IndexPath(), time);
  while (!client->CheckHealth().ok()) std::this_thread::yield();
  const auto after = (*cluster)->RunRanks(200, 2);
  EXPECT_TRUE(after.ok()) << after.status();
}

}  // namespace
}  // namespace ballast
