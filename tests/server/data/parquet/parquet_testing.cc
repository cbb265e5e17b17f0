#include "tests/server/data/parquet/parquet_testing.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/data/index/index_builder.h"
#include "server/data/jsonl/media_root.h"
#include "server/data/parquet/parquet_file.h"
#include "server/data/source_files.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/data/fake_videos.h"

namespace ballast {

void ParquetTest::SetUp() {
  if (!CheckParquetIsBuiltIn().ok()) GTEST_SKIP() << "this build has no Arrow";
  folder_ = TestFolder();
  path_ = folder_ + "/docs.parquet";
}

std::string ParquetTest::GetFile(const std::string& name) {
  return ReadFile("tests/server/data/parquet/files/" + name);
}

v1::Source ParquetTest::GetSource(const std::string& name) {
  WriteFile(path_, GetFile(name));
  return MakeSource(v1::Source::FORMAT_PARQUET, "docs.parquet");
}

IndexReport ParquetTest::Build(const v1::Source& source) {
  const auto report = BuildIndex(source, folder_, FakeVideoOptions());
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : IndexReport();
}

std::unique_ptr<FileSource> ParquetTest::Open(const v1::Source& source,
                                              uint64_t cache_bytes) {
  auto index = OpenFreshIndex(source, folder_, FakeKey());
  EXPECT_TRUE(index.ok()) << index.status();
  auto files = ListSourceFiles(source, folder_);
  EXPECT_TRUE(files.ok()) << files.status();
  cache_ = std::make_shared<RowGroupCache>(cache_bytes);
  return std::make_unique<FileSource>(
      MakeParquetParser(GetParquetColumns(source),
                        *MediaRoot::Create({folder_}), cache_),
      *std::move(index), *std::move(files), std::make_shared<OpenFileCache>(8));
}

void ParquetTest::ExpectSamples(const std::string& name,
                                const FileSource& source) {
  const auto expected = nlohmann::json::parse(GetFile("expected.json"))[name];
  const auto starts = source.index().group_starts();
  EXPECT_EQ(std::vector<uint64_t>(starts.begin(), starts.end()),
            expected["groups"].get<std::vector<uint64_t>>());
  ASSERT_EQ(source.index().size(), expected["samples"].size());
  for (uint64_t i = 0; i < source.index().size(); ++i) {
    SCOPED_TRACE(absl::StrCat("sample ", i));
    const auto& wanted = expected["samples"][i];
    const auto sample = ReadSample(source, i);
    ASSERT_TRUE(sample.ok()) << sample.status();
    EXPECT_EQ(sample->name,
              absl::StrCat("docs.parquet: row ", wanted["row"].get<int>()));
    EXPECT_EQ(source.Locate(i).number, wanted["row"].get<uint64_t>());
    if (wanted["messages"].is_string()) {
      EXPECT_EQ(sample->text_format, RawSample::TextFormat::kPlain);
      EXPECT_EQ(sample->text, wanted["messages"]);
    } else {
      EXPECT_EQ(sample->text_format, RawSample::TextFormat::kConversation);
      nlohmann::json whole = wanted["beside"];
      whole["messages"] = wanted["messages"];
      EXPECT_EQ(nlohmann::json::parse(sample->text), whole);
    }
    ASSERT_EQ(Images(*sample).size(), wanted["images"].size());
    const auto indexed = source.index().sample(i);
    ASSERT_TRUE(indexed.ok()) << indexed.status();
    EXPECT_EQ(indexed->text_tokens, sample->text.size());
    for (size_t k = 0; k < Images(*sample).size(); ++k) {
      std::string bytes;
      ASSERT_TRUE(
          absl::Base64Unescape(wanted["images"][k].get<std::string>(), &bytes));
      EXPECT_EQ(Images(*sample)[k], bytes);
      const auto size = ReadFakeImage(bytes);
      ASSERT_TRUE(size.ok());
      EXPECT_EQ(indexed->media.images()[k].width, size->width);
      EXPECT_EQ(indexed->media.images()[k].height, size->height);
    }
  }
}

}  // namespace ballast
