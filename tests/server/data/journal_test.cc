#include "server/data/journal.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JournalTest : public ::testing::Test {
 protected:
  // What a journal at path_ holds for `key`; empty if it belongs to another.
  std::vector<std::string> Records(const std::string& key) {
    std::vector<std::string> records;
    const auto read = Journal::Read(path_, key, [&](absl::string_view record) {
      records.emplace_back(record);
      return absl::OkStatus();
    });
    EXPECT_TRUE(read.ok()) << read.status();
    return records;
  }
  void Write(const std::vector<std::string>& records) {
    auto journal = Journal::Open(
        path_, "key", [](absl::string_view) { return absl::OkStatus(); });
    ASSERT_TRUE(journal.ok()) << journal.status();
    for (const std::string& record : records) {
      ASSERT_TRUE(journal->Append(record).ok());
    }
    ASSERT_TRUE(journal->Sync().ok());
  }

  const std::string path_ = TestFolder() + "/new/docs.index.scan-1-of-1";
};

TEST_F(JournalTest, ReadsWhatWasWrittenForTheSameKey) {
  EXPECT_FALSE(*Journal::Read(path_, "key", nullptr));
  Write({"first", ""});
  Write({std::string(100'000, 'x')});
  EXPECT_THAT(Records("key"),
              ElementsAre("first", "", std::string(100'000, 'x')));
  EXPECT_THAT(Records("other"), IsEmpty());
  // Opened for another key it is begun anew.
  ASSERT_TRUE(Journal::Open(path_, "other", [](absl::string_view) {
                return absl::InternalError("of another key");
              }).ok());
  EXPECT_THAT(Records("key"), IsEmpty());
}

// A killed process leaves any part of its last record.
TEST_F(JournalTest, GoesOnBehindTheLastWholeRecord) {
  Write({"first"});
  const std::string whole = ReadFile(path_);
  Write({"second"});
  const std::string bytes = ReadFile(path_);
  for (size_t size = whole.size(); size < bytes.size(); ++size) {
    WriteFile(path_, bytes.substr(0, size));
    EXPECT_THAT(Records("key"), ElementsAre("first")) << size;
    Write({"third"});
    EXPECT_THAT(Records("key"), ElementsAre("first", "third")) << size;
  }
}

TEST_F(JournalTest, FindsEveryFlippedBit) {
  Write({"first", "second"});
  const std::string bytes = ReadFile(path_);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] ^= static_cast<char>(1 << i % 8);
    WriteFile(path_, damaged);
    EXPECT_LT(Records("key").size(), 2u) << i;
  }
}

TEST_F(JournalTest, ARecordThatNobodyWritesEndsIt) {
  Write({"first", "bad", "third"});
  std::vector<std::string> records;
  const auto take = [&](absl::string_view record) {
    if (record == "bad") return absl::InvalidArgumentError("bad");
    records.emplace_back(record);
    return absl::OkStatus();
  };
  {
    auto journal = Journal::Open(path_, "key", take);
    ASSERT_TRUE(journal.ok()) << journal.status();
    EXPECT_THAT(records, ElementsAre("first"));
    ASSERT_TRUE(journal->Append("fourth").ok());
    // Nobody else writes it meanwhile.
    const absl::Status other = Journal::Open(path_, "key", take).status();
    EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(other.message()),
                HasSubstr("another process is writing it"));
  }
  EXPECT_THAT(Records("key"), ElementsAre("first", "fourth"));
}

TEST_F(JournalTest, FindsJournalsByTheirNames) {
  const std::string index = TestFolder() + "/docs.index";
  for (const char* name : {".scan-1-of-3", ".scan-2-of-3", ".scan-7-of-8",
                           ".check-1-of-5", ".scan-0-of-2", ".scan-1-of-x"}) {
    WriteFile(index + name, "");
  }
  EXPECT_THAT(*FindShardCounts(index, kScanJournal), ElementsAre(3, 8));
  EXPECT_THAT(*FindShardCounts(index, kCheckJournal), ElementsAre(5));
  RemoveJournals(index, kScanJournal, {3});
  EXPECT_THAT(*FindShardCounts(index, kScanJournal), ElementsAre(8));
}

TEST(ShardTest, ShardsFollowOneAnother) {
  for (const uint64_t units : {0, 1, 5, 64, 1000}) {
    for (const uint32_t count : {1, 2, 3, 7, 100}) {
      uint64_t end = 0;
      for (uint32_t number = 1; number <= count; ++number) {
        const UnitRange range = GetUnits({number, count}, units);
        EXPECT_EQ(range.begin, end);
        end = range.end;
        const uint64_t size = range.end - range.begin;
        EXPECT_GE(size, units / count);
        EXPECT_LE(size, units / count + 1);
      }
      EXPECT_EQ(end, units);
    }
  }
}

TEST(ShardTest, ReadsShards) {
  EXPECT_EQ(*ParseShard("3/8"), (Shard{3, 8}));
  EXPECT_EQ(*ParseShard("1/1"), (Shard{1, 1}));
  for (const char* text :
       {"", "3", "0/8", "9/8", "1/0", "-1/8", "1/8/2", "a/b", "1/65537"}) {
    const absl::Status status = ParseShard(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ParseShard("9/8").status().message(),
            "shard 9/8, wanted I/N with I from 1 to N and N of at most 65536");
}

}  // namespace
}  // namespace ballast
