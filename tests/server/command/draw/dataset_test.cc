#include "server/command/draw/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "server/config/config_loader.h"
#include "server/data/parquet/parquet_file.h"
#include "server/files/file.h"
#include "tests/fakes/read_file.h"

namespace ballast {
namespace {

TEST(DatasetConfigTest, LoadsAsAJobOfDpFour) {
  const auto loaded = ParseConfig(DatasetConfigText(DatasetFormat::kWebDataset),
                                  "ballast.yaml", "data");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const v1::Config& config = loaded->config;
  EXPECT_EQ(config.topology().modules().at("vision").dp(), 4u);
  EXPECT_EQ(config.topology().modules().at("language").dp(), 4u);
  EXPECT_EQ(config.model().tokenizer(), "bytes");
  EXPECT_EQ(config.sources(0).format(), v1::Source::FORMAT_WEBDATASET);
  EXPECT_EQ(config.sources(0).path(), "docs-*.tar");
  const auto parquet = ParseConfig(DatasetConfigText(DatasetFormat::kParquet),
                                   "ballast.yaml", "data");
  ASSERT_TRUE(parquet.ok()) << parquet.status();
  EXPECT_EQ(parquet->config.sources(0).format(), v1::Source::FORMAT_PARQUET);
  EXPECT_EQ(parquet->config.sources(0).path(), "docs-*.parquet");
}

// The bytes tokenizer turns every byte into a token.
TEST(DatasetConfigTest, HoldsEverySampleThatCanBeDrawn) {
  const auto loaded = ParseConfig(DatasetConfigText(DatasetFormat::kWebDataset),
                                  "ballast.yaml", "data");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const v1::Model& model = loaded->config.model();
  const uint64_t side = uint64_t{model.patch()} * model.merge();
  const uint64_t image = model.max_pixels() / (side * side) + 2;
  // Three pairs of turns and a system turn; each has a role, line breaks and
  // two special tokens.
  const uint64_t frames = 7 * (1 + sizeof("assistant\n") + 1 + 1);
  const uint64_t max_tokens = loaded->config.batch().max_tokens();
  EXPECT_LE(kMaxBytesSaid + frames, max_tokens);
  EXPECT_LE(4 * image + kMaxBytesSaidOfImages + frames, max_tokens);
}

namespace fs = std::filesystem;

using ::testing::HasSubstr;

// Maps file names to contents.
std::map<std::string, std::string> ReadDirectory(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    files[entry.path().filename()] = ReadFile(entry.path());
  }
  return files;
}

// Members of a tar file in order, read by the format's definition alone.
std::vector<std::pair<std::string, std::string>> ReadTar(
    const std::string& tar) {
  std::vector<std::pair<std::string, std::string>> members;
  for (size_t at = 0; at + 512 <= tar.size() && tar[at] != '\0';) {
    const size_t size =
        std::strtoull(tar.substr(at + 124, 12).c_str(), nullptr, 8);
    members.emplace_back(tar.substr(at, 100).c_str(),
                         tar.substr(at + 512, size));
    at += 512 + (size + 511) / 512 * 512;
  }
  return members;
}

class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() {
    root_ = fs::path(::testing::TempDir()) /
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
  }

  DatasetOptions Options(const std::string& directory, uint64_t samples,
                         Preset preset = Preset::kText) const {
    DatasetOptions options;
    options.directory = root_ / directory;
    options.samples = samples;
    options.preset = preset;
    options.shard_samples = 5;
    return options;
  }

  fs::path root_;
};

TEST_F(DatasetTest, EqualOptionsGiveEqualBytes) {
  for (const Preset preset :
       {Preset::kReceipts, Preset::kMixed, Preset::kText}) {
    const std::string name = std::to_string(static_cast<int>(preset));
    const DatasetOptions a = Options(name + "a/new", 7, preset);
    const DatasetOptions same = Options(name + "b", 7, preset);
    DatasetOptions other = Options(name + "c", 7, preset);
    other.seed = 2;
    for (const DatasetOptions& options : {a, same, other}) {
      const auto report = WriteDataset(options);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(report->shards, 2u);
      EXPECT_TRUE(report->wrote_config);
    }
    const auto files = ReadDirectory(a.directory);
    EXPECT_EQ(files.size(), 3u);
    EXPECT_TRUE(files == ReadDirectory(same.directory));
    const auto others = ReadDirectory(other.directory);
    EXPECT_TRUE(files.at("docs-000000.tar") != others.at("docs-000000.tar"));
    // Writes over an older dataset with the same shards; nothing of that must
    // remain.
    ASSERT_TRUE(WriteDataset([&] {
                  DatasetOptions over = other;
                  over.seed = a.seed;
                  return over;
                }())
                    .ok());
    EXPECT_TRUE(files == ReadDirectory(other.directory));
  }
}

TEST_F(DatasetTest, ShardsHoldConsecutiveKeysAndTheirFiles) {
  const DatasetOptions options = Options("data", 12, Preset::kMixed);
  const auto report = WriteDataset(options);
  ASSERT_TRUE(report.ok()) << report.status();
  uint64_t number = 0;
  uint64_t images = 0;
  uint64_t bytes = 0;
  for (uint64_t shard = 0; shard < 3; ++shard) {
    const auto members = ReadTar(ReadFile(
        fs::path(options.directory) / absl::StrFormat("docs-%06d.tar", shard)));
    size_t next = 0;
    for (uint64_t of_shard = 0; of_shard < (shard < 2 ? 5u : 2u); ++of_shard) {
      const std::string key = absl::StrFormat("%06d", number);
      const auto sample = DrawSample(options.preset, options.seed, number);
      ASSERT_TRUE(sample.ok());
      for (size_t i = 0; i < sample->images.size(); ++i, ++next, ++images) {
        ASSERT_LT(next, members.size());
        const std::string place =
            sample->images.size() == 1 ? "" : "." + std::to_string(i);
        EXPECT_EQ(members[next].first,
                  key + place + "." +
                      std::string(FileExtension(sample->images[i].format)));
        EXPECT_TRUE(members[next].second == sample->images[i].bytes);
        bytes += members[next].second.size();
      }
      ASSERT_LT(next, members.size());
      EXPECT_EQ(members[next].first, key + ".json");
      EXPECT_EQ(members[next].second, sample->conversation);
      EXPECT_EQ(nlohmann::json::parse(sample->conversation).at("id"), key);
      bytes += members[next].second.size();
      ++next;
      ++number;
    }
    EXPECT_EQ(next, members.size());
  }
  EXPECT_EQ(report->media[MediumKind::kImage], images);
  EXPECT_EQ(report->bytes, bytes);
}

TEST_F(DatasetTest, KeepsAnExistingConfiguration) {
  const DatasetOptions options = Options("data", 1);
  fs::create_directories(options.directory);
  const fs::path config = fs::path(options.directory) / "ballast.yaml";
  std::ofstream(config) << "mine";
  const auto report = WriteDataset(options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->wrote_config);
  EXPECT_EQ(ReadFile(config), "mine");
}

TEST_F(DatasetTest, RefusesShardsThatItWouldNotOverwrite) {
  ASSERT_TRUE(WriteDataset(Options("data", 11)).ok());
  const auto files = ReadDirectory(root_ / "data");
  const auto report = WriteDataset(Options("data", 10));
  EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(report.status().message()),
              HasSubstr("docs-000002.tar"));
  EXPECT_TRUE(files == ReadDirectory(root_ / "data"));
  EXPECT_TRUE(WriteDataset(Options("data", 11)).ok());
}

// The same samples as in tars.
TEST_F(DatasetTest, WritesParquet) {
  DatasetOptions options = Options("data", 7, Preset::kMixed);
  options.format = DatasetFormat::kParquet;
  if (!CheckParquetIsBuiltIn().ok()) {
    EXPECT_EQ(WriteDataset(options).status().code(),
              absl::StatusCode::kUnimplemented);
    GTEST_SKIP() << "this build has no Arrow";
  }
  const auto report = WriteDataset(options);
  ASSERT_TRUE(report.ok()) << report.status();
  ParquetColumns columns;
  columns.recognise = true;
  uint64_t number = 0;
  for (uint64_t shard = 0; shard < 2; ++shard) {
    const auto file = File::Open(
        absl::StrFormat("%s/docs-%06d.parquet", options.directory, shard));
    ASSERT_TRUE(file.ok()) << file.status();
    const auto parquet = OpenParquetFile(&*file, columns);
    ASSERT_TRUE(parquet.ok()) << parquet.status();
    ASSERT_EQ((*parquet)->groups().size(), 1u);
    const auto rows = (*parquet)->Read(&*file, 0);
    ASSERT_TRUE(rows.ok()) << rows.status();
    ASSERT_EQ((*rows)->size(), shard == 0 ? 5u : 2u);
    for (uint64_t row = 0; row < (*rows)->size(); ++row, ++number) {
      const auto sample = DrawSample(options.preset, options.seed, number);
      ASSERT_TRUE(sample.ok());
      const auto found = (*rows)->Row(row);
      ASSERT_TRUE(found.ok()) << found.status();
      const auto turns = nlohmann::json::parse(found->text).at("messages");
      const auto wanted =
          nlohmann::json::parse(sample->conversation).at("conversations");
      ASSERT_EQ(turns.size(), wanted.size());
      for (size_t i = 0; i < turns.size(); ++i) {
        EXPECT_EQ(turns[i].at("role"), wanted[i].at("from"));
        EXPECT_EQ(turns[i].at("content"), wanted[i].at("value"));
      }
      ASSERT_EQ(found->images.size(), sample->images.size());
      for (size_t i = 0; i < found->images.size(); ++i) {
        EXPECT_TRUE(found->images[i].bytes == sample->images[i].bytes);
      }
    }
  }
  EXPECT_EQ(number, 7u);
  // A directory holds one format.
  options.format = DatasetFormat::kWebDataset;
  EXPECT_EQ(WriteDataset(options).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(DatasetTest, RefusesImpossibleOptions) {
  EXPECT_EQ(WriteDataset(Options("data", 0)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteDataset(Options("data", uint64_t{5000001})).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(root_));
  // A file occupies the directory's path.
  fs::create_directories(root_);
  std::ofstream(root_ / "data") << "a file";
  const auto report = WriteDataset(Options("data", 1));
  EXPECT_FALSE(report.ok());
  EXPECT_THAT(std::string(report.status().message()),
              HasSubstr((root_ / "data").string()));
}

}  // namespace

}  // namespace ballast
