// Data files that change, shrink and vanish under running servers.

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/ballastctl/query_client.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kSamplesAFile = 12;

class BadDataTest : public ::testing::Test {
 protected:
  // Creates a folder with two tar files, read in order.
  BadDataTest() {
    for (const char* file : {"docs-0.tar", "docs-1.tar"}) {
      EXPECT_TRUE(WriteFormulaDataset(Path(file), kSamplesAFile).ok());
    }
  }

  std::string Path(const std::string& name) const {
    return absl::StrCat(folder_, "/", name);
  }

  LoadedConfig Config(const std::string& serve) {
    TestJob job;
    job.batch = "global: 4, micro: 4";
    job.serve = absl::StrCat(", prefetch_steps: 0", serve);
    job.more = "order: {shuffle: false}\n";
    return ParseJob(job, folder_);
  }

  std::unique_ptr<TestCluster> Start(const std::string& serve = "",
                                     int servers = 1) {
    return StartCluster(Config(serve), servers);
  }

  // Runs pass number `epoch` through both files, whose samples come in order,
  // and numbers its steps as if it were the first. (Blocks of a pass may be
  // kept, so each pass is run once.)
  TestCluster::Batches RunAll(const TestCluster& cluster, uint64_t epoch) {
    constexpr uint64_t kSteps = 2 * kSamplesAFile / 4;
    auto got = cluster.RunRanks(epoch * kSteps, kSteps);
    EXPECT_TRUE(got.ok()) << got.status();
    TestCluster::Batches batches;
    if (!got.ok()) return batches;
    for (auto& [key, batch] : *got) {
      auto first = key;
      std::get<0>(first) -= epoch * kSteps;
      batches[first] = std::move(batch);
    }
    return batches;
  }

  v1::GetStatusResponse StatusOf(const TestCluster& cluster) {
    const auto status = QueryClient(cluster.addresses()[0]).GetStatus();
    EXPECT_TRUE(status.ok()) << status.status();
    return *status;
  }

  // Number of blocks that the server could not build so far.
  double FailedBlocks(const TestCluster& cluster) {
    const auto stats =
        QueryClient(cluster.addresses()[0]).GetStats("ballast_blocks_failed");
    if (!stats.ok()) return 0;
    double failed = 0;
    for (const auto& family : stats->families()) {
      for (const auto& metric : family.metrics()) failed += metric.number();
    }
    return failed;
  }

  const std::string folder_ = TestFolder();
};

// Overwrites the first byte of every text, but keeps the file's size and time.
void Damage(const std::string& path) {
  const auto time = std::filesystem::last_write_time(path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  constexpr uint64_t kBlock = 512;  // a tar file's
  char header[kBlock];
  for (uint64_t at = 0;
       file.seekg(at).read(header, kBlock) && header[0] != 0;) {
    const uint64_t size = std::strtoull(header + 124, nullptr, 8);
    if (absl::EndsWith(header, ".json")) file.seekp(at + kBlock).put('x');
    at += kBlock + (size + kBlock - 1) / kBlock * kBlock;
  }
  file.close();
  std::filesystem::last_write_time(path, time);
}

// Checks that placeholders replace exactly the samples of the second file that
// `bad` selects, and that none of their tokens is supervised.
void ExpectPlaceholders(const TestCluster::Batches& batches,
                        const TestCluster::Batches& before) {
  ASSERT_EQ(batches.size(), before.size());
  for (const auto& [key, batch] : batches) {
    const bool vision = batch.role.module() == v1::MODULE_VISION;
    bool any = false;
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      const PackedSample& sample = batch.samples[i];
      bool bad = sample.ordinal >= kSamplesAFile;
      // Vision reads nothing for a sample without images.
      if (vision) {
        bad = bad && FormulaImages(sample.ordinal % kSamplesAFile) > 0;
      }
      EXPECT_EQ(sample.placeholder, bad) << sample.name << (vision ? " v" : "");
      any = any || bad;
      if (vision) continue;
      for (int32_t t = batch.text.cu_seqlens_padded[i];
           t < batch.text.cu_seqlens_padded[i + 1]; ++t) {
        if (bad) {
          ASSERT_EQ(batch.Get<float>("loss_mask")[t], 0) << sample.name;
        }
      }
    }
    // The schedule is unchanged, and so is everything outside of the file.
    EXPECT_EQ(batch.totals.tokens, before.at(key).totals.tokens);
    if (!any) {
      EXPECT_EQ(ComputeDigest(batch), ComputeDigest(before.at(key)));
    }
  }
}

TEST_F(BadDataTest, ReplacesSamplesOfAChangedFile) {
  const auto cluster = Start();
  const auto before = RunAll(*cluster, 0);
  Damage(Path("docs-1.tar"));
  ExpectPlaceholders(RunAll(*cluster, 1), before);

  const v1::GetStatusResponse status = StatusOf(*cluster);
  ASSERT_EQ(status.bad_samples_size(), kSamplesAFile);
  EXPECT_EQ(status.max_bad_samples(), 100u);
  std::set<uint64_t> offsets;
  for (const auto& bad : status.bad_samples()) {
    EXPECT_THAT(bad.sample(), HasSubstr("docs:"));
    EXPECT_EQ(bad.file(), "docs-1.tar");
    EXPECT_THAT(bad.reason(), HasSubstr("changed since it was indexed"));
    EXPECT_TRUE(offsets.insert(bad.offset()).second);
    EXPECT_EQ(bad.offset() % 512, 0u);
  }
}

// A file that is copied again in place is short, then whole, then has its time
// again. Nothing of the time between reaches a batch.
TEST_F(BadDataTest, WaitsForAFileThatIsCopiedAgainInPlace) {
  const auto cluster = Start();
  const auto before = RunAll(*cluster, 0);
  const std::string path = Path("docs-1.tar");
  const auto time = std::filesystem::last_write_time(path);
  std::stringstream whole;
  whole << std::ifstream(path, std::ios::binary).rdbuf();
  std::filesystem::resize_file(path, 512);
  std::thread copier([&] {
    const auto await_failure = [&](double failed) {
      while (FailedBlocks(*cluster) <= failed) std::this_thread::yield();
    };
    await_failure(0);
    std::ofstream(path, std::ios::binary) << whole.str();
    // The bytes are back, and the time is not.
    await_failure(FailedBlocks(*cluster));
    std::filesystem::last_write_time(path, time);
  });
  const auto after = RunAll(*cluster, 1);
  copier.join();
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [key, batch] : after) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(before.at(key)));
  }
  EXPECT_EQ(StatusOf(*cluster).bad_samples_size(), 0);
}

// An open file outlives its name.
TEST_F(BadDataTest, ServesADeletedFileToTheEnd) {
  const auto cluster = Start();
  const auto before = RunAll(*cluster, 0);
  std::filesystem::remove(Path("docs-1.tar"));
  const auto after = RunAll(*cluster, 1);
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [key, batch] : after) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(before.at(key)));
  }
  EXPECT_EQ(StatusOf(*cluster).bad_samples_size(), 0);
}

// A missing file says nothing about its samples' bytes.
TEST_F(BadDataTest, WaitsForAMissingFile) {
  const auto other = Start();
  const auto before = RunAll(*other, 0);
  const auto cluster = Start();
  const std::string away = Path("away");
  std::filesystem::rename(Path("docs-1.tar"), away);
  std::thread mover([&] {
    while (FailedBlocks(*cluster) == 0) std::this_thread::yield();
    std::filesystem::rename(away, Path("docs-1.tar"));
  });
  const auto after = RunAll(*cluster, 0);
  mover.join();
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [key, batch] : after) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(before.at(key)));
  }
  EXPECT_EQ(StatusOf(*cluster).bad_samples_size(), 0);
}

// Beyond an image's header, and where the decoder has nothing to say against
// it.
TEST_F(BadDataTest, FindsAFlippedBitByItsHash) {
  std::filesystem::remove(Path("docs-1.tar"));
  const std::string path = Path("docs-0.tar");
  ASSERT_TRUE(WriteJpegDataset(path, {.samples = 2 * kSamplesAFile}).ok());
  const LoadedConfig config = Config("");
  IndexSourcesOptions options;
  options.hash = true;
  ASSERT_TRUE(IndexSources(config, options).ok());
  const auto cluster = Start();
  const auto before = RunAll(*cluster, 0);
  std::set<std::string> flipped;  // keys
  {
    const auto time = std::filesystem::last_write_time(path);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    char header[512];
    for (uint64_t at = 0; file.seekg(at).read(header, 512) && header[0] != 0;) {
      const uint64_t size = std::strtoull(header + 124, nullptr, 8);
      if (absl::EndsWith(header, ".jpg") && size > 6000) {
        const uint64_t place = at + 512 + size * 3 / 4;
        const char byte = static_cast<char>(file.seekg(place).get());
        file.seekp(place).put(static_cast<char>(byte ^ 1));
        const std::string name = header;
        flipped.insert(name.substr(0, name.find('.')));
      }
      at += 512 + (size + 511) / 512 * 512;
    }
    file.close();
    std::filesystem::last_write_time(path, time);
  }
  ASSERT_GT(flipped.size(), 3u);
  const auto after = RunAll(*cluster, 1);
  ASSERT_EQ(after.size(), before.size());
  const v1::GetStatusResponse status = StatusOf(*cluster);
  EXPECT_EQ(status.bad_samples_size(), static_cast<int>(flipped.size()));
  for (const auto& bad : status.bad_samples()) {
    EXPECT_THAT(bad.reason(), HasSubstr("file of hash "));
    EXPECT_THAT(bad.reason(), HasSubstr("when `index` read it"));
  }
}

TEST_F(BadDataTest, EndsTheRunAfterTooManyBadSamples) {
  const auto cluster = Start(", max_bad_samples: 2", 2);
  Damage(Path("docs-1.tar"));
  const auto batches = cluster->RunRanks(0, 6);
  EXPECT_EQ(batches.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(batches.status().message()),
              AllOf(HasSubstr("none of the 2 servers can go on"),
                    HasSubstr("serve.max_bad_samples"),
                    HasSubstr("2 samples before it were bad"),
                    HasSubstr("; docs:1"), HasSubstr("docs-1.tar")));
  EXPECT_EQ(StatusOf(*cluster).bad_samples_size(), 2);
}

TEST_F(BadDataTest, EndsTheRunAtTheFirstBadSampleIfConfigured) {
  const auto cluster = Start(", on_bad_sample: error");
  Damage(Path("docs-1.tar"));
  const auto batches = cluster->RunRanks(0, 6);
  EXPECT_EQ(batches.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(
      std::string(batches.status().message()),
      AllOf(HasSubstr("the only server cannot go on"), HasSubstr("docs:1"),
            HasSubstr("docs-1.tar"), HasSubstr("changed since")));
}

}  // namespace
}  // namespace ballast
