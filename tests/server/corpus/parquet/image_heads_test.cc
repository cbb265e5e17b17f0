// Indexing Parquet in a store (here file://, which takes the same way) by the
// heads of images, against indexing the same file by reading it whole.
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/corpus/index/index_builder.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/corpus/parquet/parquet_testing.h"

namespace ballast {
namespace {

class ImageHeadsTest : public ParquetTest {
 protected:
  // The source over the same file, through the store. It has an index of its
  // own.
  v1::Source InStore(v1::Source source) const {
    source.set_path("file://" + path_);
    source.set_index("index/store.index");
    return source;
  }

  // Samples, sizes, places, checks and reasons of bad rows are the same.
  void ExpectSameIndex(const v1::Source& source) {
    const IndexReport whole = Build(source);
    const IndexReport heads = Build(InStore(source));
    ASSERT_EQ(heads.bad.size(), whole.bad.size());
    for (size_t i = 0; i < whole.bad.size(); ++i) {
      EXPECT_EQ(heads.bad[i].offset, whole.bad[i].offset);
      EXPECT_EQ(heads.bad[i].reason, whole.bad[i].reason);
    }
    EXPECT_EQ(heads.filtered, whole.filtered);
    EXPECT_EQ(Open(InStore(source))->index().digest(),
              Open(source)->index().digest());
  }
};

TEST_F(ImageHeadsTest, MakesTheIndexOfTheWholeFile) {
  for (const char* name :
       {"heads_plain.parquet", "heads_dictionary.parquet",
        "heads_pages.parquet", "heads_delta.parquet", "heads_snappy.parquet",
        "heads_single.parquet", "heads_small.parquet", "finevision.parquet",
        "llava.parquet", "openai.parquet", "other_types.parquet",
        "bad_rows.parquet", "empty.parquet", "wide.parquet",
        "pages_none_1.parquet", "pages_coded.parquet", "pages_struct.parquet",
        "image_parts.parquet", "placed_none_1.parquet"}) {
    SCOPED_TRACE(name);
    const v1::Source source = GetSource(name);
    ExpectSameIndex(source);
  }
  v1::Source source = GetSource("filtered.parquet");
  source.add_filters("image_correspondence_min >= 2");
  ExpectSameIndex(source);
}

TEST_F(ImageHeadsTest, DamagedTextStillCostsItsRowGroup) {
  std::string bytes = GetFile("heads_pages.parquet");
  const v1::Source source = GetSource("heads_pages.parquet");
  // A value in its page; statistics have other bytes before it.
  const size_t text = bytes.find(std::string("\2\0\0\0q3", 6));
  ASSERT_NE(text, bytes.npos);
  bytes[text + 5] ^= 1;
  WriteFile(path_, bytes);
  // Pages of text are compared with their checksums, as in a local file.
  const IndexReport report = Build(InStore(source));
  ASSERT_EQ(report.bad.size(), 1u);
  EXPECT_NE(report.bad[0].reason.find("row group of rows 1 to 12"),
            std::string::npos)
      << report.bad[0].reason;
  EXPECT_EQ(report.samples, 12u);
}

TEST_F(ImageHeadsTest, AnyDamageIsAnErrorOrBadSamples) {
  std::mt19937_64 random(11);
  for (const char* name : {"heads_plain.parquet", "heads_dictionary.parquet",
                           "heads_pages.parquet", "heads_single.parquet"}) {
    const v1::Source source = InStore(GetSource(name));
    const std::string whole = GetFile(name);
    std::vector<size_t> headers;
    // Where something is, beside the footer: outside the images' bodies.
    for (size_t i = 1; i < whole.size(); ++i) {
      if (whole[i] != whole[i - 1]) headers.push_back(i);
    }
    for (int round = 0; round < 25; ++round) {
      std::string bytes = whole;
      for (uint64_t i = 0; i <= random() % 4; ++i) {
        bytes[headers[random() % headers.size()]] ^= 1 << random() % 8;
      }
      SCOPED_TRACE(absl::StrCat(name, " round ", round));
      WriteFile(path_, bytes);
      const auto report = BuildIndex(source, folder_, FakeOptions());
      if (!report.ok()) {
        EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition)
            << report.status();
        continue;
      }
      const auto opened = Open(source);
      for (uint64_t i = 0; i < opened->index().size(); ++i) {
        // A sample, or a fault that is counted; never a failure of the store.
        EXPECT_TRUE(opened->Read(i, ReadParts()).ok());
      }
    }
  }
}

}  // namespace
}  // namespace ballast
