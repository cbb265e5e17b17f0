#include "server/data/index/shard_scan.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/data/index/index_builder.h"
#include "server/data/source_files.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ShardScanTest : public ::testing::Test {
 protected:
  static constexpr int kTars = 7;

  // Seven tars of some samples, with bad, skipped and ignored ones.
  ShardScanTest() {
    for (int i = 0; i < kTars; ++i) WriteOne(i, "text");
  }

  void WriteOne(int i, const std::string& text) {
    std::vector<std::pair<std::string, std::string>> members;
    for (int j = 0; j < 3 + i; ++j) {
      const std::string key = absl::StrCat("k", j);
      members.push_back({key + ".txt", absl::StrCat(text, i, "-", j)});
      members.push_back({key + ".0.jpg", FakeImage(i + 1, j + 1)});
      if (j % 2 == 0) members.push_back({key + ".1.jpg", FakeImage(9, j + 1)});
      members.push_back({key + ".cls", "7"});
    }
    members.push_back({"bad.txt", "unmeasurable"});
    members.push_back({"left.txt", "skip"});
    members.push_back({"plain.txt", "words"});
    members.push_back({"worse.txt", "x"});
    members.push_back({"worse.jpg", "no image"});
    WriteTar(absl::StrCat(folder_, "/docs-", i, ".tar"), members);
  }

  std::string IndexOfOneRun() {
    const auto report = BuildIndex(source_, folder_, FakeOptions());
    EXPECT_TRUE(report.ok()) << report.status();
    const std::string bytes = ReadFile(path_);
    fs::remove(path_);
    return bytes;
  }

  ShardScanReport Scan(uint32_t number, uint32_t count) {
    const auto report =
        ScanShard(source_, folder_, FakeOptions(), {number, count});
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : ShardScanReport();
  }

  absl::StatusOr<IndexReport> Merge() {
    return MergeScans(source_, folder_, FakeOptions());
  }

  size_t Journals() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_ + "/index")) {
      count += entry.path().string().find(".scan-") != std::string::npos;
    }
    return count;
  }

  const std::string folder_ = TestFolder();
  const v1::Source source_ =
      MakeSource(v1::Source::FORMAT_WEBDATASET, "docs-*.tar");
  const std::string path_ = IndexPath(source_, folder_, FakeKey());
};

TEST_F(ShardScanTest, MergesToTheIndexOfOneRun) {
  const auto one = BuildIndex(source_, folder_, FakeOptions());
  ASSERT_TRUE(one.ok());
  const std::string wanted = ReadFile(path_);
  for (const uint32_t shards : {1u, 2u, 3u, 7u, 20u}) {
    fs::remove(path_);
    uint64_t samples = 0;
    // In any order.
    for (uint32_t number = shards; number >= 1; --number) {
      samples += Scan(number, shards).samples;
    }
    EXPECT_FALSE(fs::exists(path_));
    const auto merged = Merge();
    ASSERT_TRUE(merged.ok()) << merged.status();
    EXPECT_EQ(ReadFile(path_), wanted) << shards << " shards";
    EXPECT_EQ(Journals(), 0);
    EXPECT_EQ(samples, one->samples);
    EXPECT_EQ(merged->samples, one->samples);
    EXPECT_EQ(merged->media, one->media);
    EXPECT_EQ(merged->skipped, one->skipped);
    EXPECT_EQ(merged->ignored, one->ignored);
    ASSERT_EQ(merged->unlearnt.size(), 1u);
    EXPECT_EQ(merged->unlearnt.at("no images").count, kTars);
    EXPECT_EQ(merged->unlearnt.at("no images").first,
              one->unlearnt.at("no images").first);
    ASSERT_EQ(merged->bad.size(), one->bad.size());
    EXPECT_EQ(merged->bad.size(), 2 * kTars);
    for (size_t i = 0; i < one->bad.size(); ++i) {
      EXPECT_EQ(merged->bad[i].file, one->bad[i].file);
      EXPECT_EQ(merged->bad[i].offset, one->bad[i].offset);
      EXPECT_EQ(merged->bad[i].key, one->bad[i].key);
      EXPECT_EQ(merged->bad[i].reason, one->bad[i].reason);
    }
  }
}

TEST_F(ShardScanTest, ShardsOfHashesMergeOnlyAsSuch) {
  IndexOptions options = FakeOptions();
  options.hash = true;
  ASSERT_TRUE(BuildIndex(source_, folder_, options).ok());
  const std::string wanted = ReadFile(path_);
  fs::remove(path_);
  for (const uint32_t number : {1u, 2u}) {
    ASSERT_TRUE(ScanShard(source_, folder_, options, {number, 2}).ok());
  }
  EXPECT_EQ(Merge().status().code(), absl::StatusCode::kFailedPrecondition);
  const auto merged = MergeScans(source_, folder_, options);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(ReadFile(path_), wanted);
}

// As a Kubernetes Indexed Job or a Slurm array runs them.
TEST_F(ShardScanTest, RunsAsProcesses) {
  const std::string wanted = IndexOfOneRun();
  constexpr uint32_t kShards = 4;
  std::vector<pid_t> children;
  for (uint32_t number = 1; number <= kShards; ++number) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      IndexOptions options = FakeOptions();
      options.threads = 2;
      const auto report =
          ScanShard(source_, folder_, options, {number, kShards});
      _exit(report.ok() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  }
  ASSERT_TRUE(Merge().ok());
  EXPECT_EQ(ReadFile(path_), wanted);
}

TEST_F(ShardScanTest, GoesOnBehindWhatItHasRecorded) {
  const std::string wanted = IndexOfOneRun();
  EXPECT_EQ(Scan(1, 2).resumed, 0);
  const std::string journal = JournalPath(path_, kScanJournal, {1, 2});
  const std::string whole = ReadFile(journal);
  // Killed at any byte: what is whole is kept, the rest is scanned again.
  for (const size_t bytes :
       {size_t{0}, size_t{30}, size_t{56}, size_t{100}, whole.size() / 2,
        whole.size() - 1, whole.size()}) {
    WriteFile(journal, whole.substr(0, bytes));
    const ShardScanReport report = Scan(1, 2);
    EXPECT_EQ(report.files, 3);
    EXPECT_LE(report.resumed, bytes == whole.size() ? 3 : 2);
    EXPECT_EQ(report.samples, 4 + 5 + 6);
    EXPECT_EQ(ReadFile(journal).size(), whole.size());
  }
  // A byte that is another on the disk ends what is taken.
  std::string flipped = whole;
  flipped[whole.size() / 2] ^= 1;
  WriteFile(journal, flipped);
  EXPECT_LT(Scan(1, 2).resumed, 3);
  Scan(2, 2);
  ASSERT_TRUE(Merge().ok());
  EXPECT_EQ(ReadFile(path_), wanted);
}

TEST_F(ShardScanTest, NamesTheShardThatIsMissing) {
  EXPECT_THAT(std::string(Merge().status().message()),
              HasSubstr("run `ballast-server index` with every --shard I/N"));
  Scan(1, 3);
  Scan(3, 3);
  const absl::Status status = Merge().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("shard 2/3 has scanned 0 of its 2 files; run "
                        "`ballast-server index --shard 2/3`"));
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(ShardScanTest, RefusesWhatChangedSinceItWasScanned) {
  Scan(1, 2);
  Scan(2, 2);
  WriteOne(1, "another text");
  EXPECT_THAT(std::string(Merge().status().message()),
              HasSubstr("shard 1/2 scanned docs-1.tar, which has changed "
                        "since"));
  EXPECT_EQ(Scan(1, 2).resumed, 2);
  const std::string wanted = IndexOfOneRun();
  ASSERT_TRUE(Merge().ok());
  EXPECT_EQ(ReadFile(path_), wanted);
}

TEST_F(ShardScanTest, TakesNothingOfAnotherConfiguration) {
  Scan(1, 2);
  Scan(2, 2);
  IndexOptions other = FakeOptions();
  other.key.lengths += "another tokenizer";
  const auto merged = MergeScans(source_, folder_, other);
  EXPECT_THAT(std::string(merged.status().message()),
              HasSubstr("no scans of these files with this configuration"));
  const auto again = ScanShard(source_, folder_, other, {1, 2});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->resumed, 0);
  // A file more is another set of files.
  WriteOne(kTars, "new");
  EXPECT_EQ(Scan(2, 2).resumed, 0);
}

TEST_F(ShardScanTest, WritesNoIndexThatIsNotAccepted) {
  Scan(1, 1);
  IndexOptions options = FakeOptions();
  options.accept = [](const IndexReport&) { return false; };
  ASSERT_TRUE(MergeScans(source_, folder_, options).ok());
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_EQ(Journals(), 1);
}

}  // namespace
}  // namespace ballast
