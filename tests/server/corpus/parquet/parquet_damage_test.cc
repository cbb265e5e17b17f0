// Damaged Parquet files: an error or bad samples, and never a sample with other
// content than it had.

#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "server/corpus/index/index_builder.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/corpus/parquet/parquet_testing.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

class ParquetDamageTest : public ParquetTest {
 protected:
  // Indexes `bytes` in place of the file; every sample that the index has must
  // be readable.
  absl::StatusOr<IndexReport> Index(const v1::Source& source,
                                    absl::string_view bytes) {
    WriteFile(path_, bytes);
    const auto report = BuildIndex(source, folder_, FakeOptions());
    if (!report.ok()) return report;
    const auto opened = Open(source);
    for (uint64_t i = 0; i < opened->index().size(); ++i) {
      EXPECT_TRUE(ReadSample(*opened, i).ok());
    }
    return report;
  }
};

TEST_F(ParquetDamageTest, TruncatedFilesAreBad) {
  const v1::Source source = GetSource("finevision.parquet");
  const std::string whole = GetFile("finevision.parquet");
  for (size_t size = 0; size < whole.size(); size += 1 + size / 20) {
    const auto report = Index(source, whole.substr(0, size));
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->samples, 0u);
    ASSERT_EQ(report->bad.size(), 1u);
    EXPECT_THAT(report->bad[0].reason, HasSubstr("damaged or not Parquet"));
  }
}

TEST_F(ParquetDamageTest, DamagedPagesCostTheirRowGroup) {
  const v1::Source source = GetSource("other_types.parquet");
  std::string bytes = GetFile("other_types.parquet");
  // The first row group: pages have checksums.
  bytes[200] ^= 1;
  const auto report = Index(source, bytes);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 2u);
  ASSERT_EQ(report->bad.size(), 1u);
  EXPECT_THAT(report->bad[0].reason, HasSubstr("row group of rows 1 to 5"));
}

TEST_F(ParquetDamageTest, AnyDamageIsAnErrorOrBadSamples) {
  std::mt19937_64 random(7);
  for (const char* name :
       {"finevision.parquet", "openai.parquet", "llava.parquet",
        "other_types.parquet", "pages_coded.parquet", "pages_zstd_2.parquet"}) {
    const v1::Source source = GetSource(name);
    const std::string whole = GetFile(name);
    for (int round = 0; round < 150; ++round) {
      std::string bytes = whole;
      // Half of the damage is in the footer, which rules the rest.
      const size_t span = round % 2 == 0 ? bytes.size() : bytes.size() / 2;
      for (uint64_t i = 0; i <= random() % 4; ++i) {
        bytes[bytes.size() - 1 - random() % span] ^= 1 << random() % 8;
      }
      SCOPED_TRACE(absl::StrCat(name, " round ", round));
      const auto report = Index(source, bytes);
      if (report.ok()) continue;
      EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition)
          << report.status();
    }
  }
}

TEST_F(ParquetDamageTest, DamageAfterIndexingIsADataFault) {
  const v1::Source source = GetSource("finevision.parquet");
  Build(source);
  const std::string whole = GetFile("finevision.parquet");
  const auto time = std::filesystem::last_write_time(path_);
  std::vector<RawSample> expected;
  {
    const auto opened = Open(source);
    for (uint64_t i = 0; i < opened->index().size(); ++i) {
      auto sample = ReadSample(*opened, i);
      ASSERT_TRUE(sample.ok()) << sample.status();
      expected.push_back(*std::move(sample));
    }
  }
  std::mt19937_64 random(3);
  int faults = 0;
  for (int round = 0; round < 200; ++round) {
    std::string bytes = whole;
    bytes[random() % bytes.size()] ^= 1 << random() % 8;
    WriteFile(path_, whole);
    std::filesystem::last_write_time(path_, time);
    const auto opened = Open(source);
    WriteFile(path_, bytes);
    // In a file of another time nothing is a data fault.
    const auto touched = opened->Read(round % expected.size(), {});
    EXPECT_TRUE(!touched.ok() || touched->ok());
    std::filesystem::last_write_time(path_, time);
    for (uint64_t i = 0; i < opened->index().size(); ++i) {
      const auto read = opened->Read(i, {});
      ASSERT_TRUE(read.ok()) << read.status();
      if (!read->ok()) {
        ++faults;
        continue;
      }
      EXPECT_EQ((*read)->text, expected[i].text);
      // Of images the index knows the length and the first 4096 bytes.
      ASSERT_EQ((*read)->images.size(), expected[i].images.size());
      for (size_t k = 0; k < expected[i].images.size(); ++k) {
        const std::string& image = (*read)->images[k];
        EXPECT_EQ(image.size(), expected[i].images[k].size());
        EXPECT_TRUE(image.substr(0, 4096) ==
                    expected[i].images[k].substr(0, 4096));
      }
    }
  }
  EXPECT_GT(faults, 0);
}

}  // namespace
}  // namespace ballast
