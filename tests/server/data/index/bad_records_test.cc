#include "server/data/index/bad_records.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/data/index/index_writer.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

BadSample Bad(const std::string& reason, const std::string& kind = "") {
  BadSample bad;
  bad.file = "chat.jsonl";
  bad.offset = 7;
  bad.key = "3";
  bad.reason = reason;
  bad.kind = kind;
  return bad;
}

std::vector<BadSample> Many(size_t count, const BadSample& bad) {
  return std::vector<BadSample>(count, bad);
}

TEST(BadRecordsTest, TheCauseIsWhatRecordsShare) {
  EXPECT_EQ(GetCause(Bad("x", "image missing")), "image missing");
  EXPECT_EQ(GetCause(Bad("images/a.jpg: not an image of 12 bytes")),
            GetCause(Bad("images/b c/d.jpg: not an image of 7 bytes")));
  EXPECT_NE(GetCause(Bad("a.jpg: not an image")),
            GetCause(Bad("a.jpg: cut off")));
}

// A share is rounded down, but lets one record pass where others are left.
TEST(BadRecordsTest, AShareIsNeverMoreThanItSaysButOneRecordMayBeBad) {
  v1::Source source;
  source.set_name("chat");
  const auto check = [&](double share, uint64_t samples, uint64_t bad) {
    source.set_max_bad(share);
    return CheckLeftOut(source,
                        SummariseBad("chat", samples, Many(bad, Bad("x")), 0),
                        "chat.index.bad");
  };
  EXPECT_TRUE(check(0.01, 19, 1).ok());
  EXPECT_FALSE(check(0.01, 18, 2).ok());
  EXPECT_TRUE(check(0.01, 139, 1).ok());
  EXPECT_FALSE(check(0.01, 138, 2).ok());
  EXPECT_TRUE(check(0.01, 198, 2).ok());
  EXPECT_TRUE(check(0.01, 990, 10).ok());
  EXPECT_FALSE(check(0.01, 989, 11).ok());
  EXPECT_FALSE(check(0, 1000, 1).ok());
  EXPECT_TRUE(check(0, 1000, 0).ok());
  EXPECT_TRUE(check(1, 0, 5).ok());
  // Nothing would be left of a source of one record.
  EXPECT_FALSE(check(0.01, 0, 1).ok());
  EXPECT_TRUE(check(0.01, 1, 1).ok());
  // Doubles: 0.07 * 100 is above 7, 0.29 * 100 below 29.
  EXPECT_TRUE(check(0.07, 93, 7).ok());
  EXPECT_FALSE(check(0.07, 92, 8).ok());
  EXPECT_TRUE(check(0.29, 71, 29).ok());
  EXPECT_FALSE(check(0.29, 70, 30).ok());
}

TEST(BadRecordsTest, TheErrorNamesThreeCausesWithExamples) {
  std::vector<BadSample> bad = Many(118, Bad("a.jpg: gone", "image missing"));
  for (const char* kind : {"one", "two", "two", "three", "three", "three"}) {
    bad.push_back(Bad("x", kind));
  }
  v1::Source source;
  source.set_name("chat");
  source.set_max_bad(0.01);
  const absl::Status status =
      CheckLeftOut(source, SummariseBad("chat", 16, bad, 0), "i.bad");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const std::string text(status.message());
  EXPECT_THAT(text, HasSubstr("source chat: 124 of 140 records are bad "
                              "(88.6%), and max_bad 1% lets 1 pass"));
  EXPECT_THAT(text, HasSubstr("118 image missing, as chat.jsonl at byte 7, "
                              "sample 3: a.jpg: gone"));
  EXPECT_THAT(text, HasSubstr("3 three"));
  EXPECT_THAT(text, HasSubstr("2 two"));
  EXPECT_THAT(text, Not(HasSubstr("1 one")));
  EXPECT_THAT(text, HasSubstr("i.bad"));
  EXPECT_THAT(text, HasSubstr("media_root"));
}

TEST(BadRecordsTest, TenOfACauseAreListed) {
  const std::string text = ListBad(Many(24'000, Bad("gone", "image missing")));
  EXPECT_THAT(text, HasSubstr("  bad: 24000 image missing\n"));
  EXPECT_THAT(text, HasSubstr("    and 23990 more\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 12);
}

// A record's text may be any bytes.
TEST(BadRecordsTest, ControlCharactersAreEscaped) {
  EXPECT_THAT(ListBad({Bad("a\x1b[2Jb\nforged")}),
              HasSubstr("a\\x1b[2Jb\\nforged"));
}

class BadListTest : public ::testing::Test {
 protected:
  // An index with `unreadable` bad records and no sample.
  std::shared_ptr<const IndexFile> Write(uint64_t unreadable) {
    IndexContents contents;
    contents.files.push_back({"chat.jsonl", {100, 1}, unreadable});
    EXPECT_EQ(WriteIndex(path_, contents), absl::OkStatus());
    auto index = IndexFile::Open(path_);
    EXPECT_TRUE(index.ok()) << index.status();
    return *std::move(index);
  }

  const std::string path_ = TestFolder() + "/a.index";
};

TEST_F(BadListTest, IsReadAgain) {
  const auto index = Write(2);
  BadSample text = Bad("too long", "too long");
  text.has_record = true;
  ASSERT_EQ(WriteBadRecords(path_, index->digest(),
                            {Bad("a"), text, Bad("\xff", "k")}),
            absl::OkStatus());
  const auto read = ReadBadRecords(*index);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 3u);
  EXPECT_EQ((*read)[0].reason, "a");
  EXPECT_EQ((*read)[0].offset, 7u);
  EXPECT_EQ((*read)[0].key, "3");
  EXPECT_TRUE((*read)[1].has_record);
  EXPECT_EQ((*read)[2].kind, "k");
  v1::Source source;
  source.set_name("chat");
  const v1::LeftOut left_out = GetLeftOut(source, *index);
  EXPECT_EQ(left_out.bad(), 3u);
  EXPECT_EQ(left_out.causes_size(), 3);
  EXPECT_EQ(left_out.causes(0).records(), 1u);
}

TEST_F(BadListTest, OfAnotherIndexCountsForNothing) {
  const auto index = Write(2);
  ASSERT_EQ(WriteBadRecords(path_, index->digest(), {Bad("a")}),
            absl::OkStatus());
  EXPECT_EQ(ReadBadRecords(*index).status().code(),
            absl::StatusCode::kDataLoss);
  // The index itself knows how many there are.
  EXPECT_EQ(GetLeftOut(v1::Source(), *index).bad(), 2u);
}

TEST_F(BadListTest, IsRemovedWhereNothingIsBad) {
  const auto index = Write(0);
  WriteFile(BadRecordsPath(path_), "old");
  ASSERT_EQ(WriteBadRecords(path_, index->digest(), {}), absl::OkStatus());
  EXPECT_FALSE(std::filesystem::exists(BadRecordsPath(path_)));
  EXPECT_EQ(GetLeftOut(v1::Source(), *index).bad(), 0u);
}

}  // namespace
}  // namespace ballast
