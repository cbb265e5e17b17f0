#include "server/corpus/check/check_journal.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/corpus/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr JournalKey kKey = {0x1234, 9, {2, 3}};

// Unit `unit` with as many images as its number.
std::string Record(uint64_t unit) {
  std::vector<uint64_t> hashes;
  std::vector<ImageCheckResult> results;
  for (uint64_t i = 0; i < unit; ++i) {
    hashes.push_back(100 * unit + i);
    results.push_back(i % 2 == 0 ? ImageCheckResult::kClean
                                 : ImageCheckResult::kUnsound);
  }
  return JournalRecord({unit, hashes, results});
}

TEST(CheckJournalTest, ReadsWhatWasWritten) {
  const std::string bytes = JournalHeader(kKey) + Record(5) + Record(3);
  const auto journal = ParseJournal(bytes);
  ASSERT_TRUE(journal.ok()) << journal.status();
  EXPECT_EQ(journal->key, kKey);
  EXPECT_EQ(journal->valid_bytes, bytes.size());
  ASSERT_EQ(journal->units.size(), 2);
  EXPECT_EQ(journal->units[0].unit, 5);
  EXPECT_EQ(journal->units[1].unit, 3);
  EXPECT_THAT(journal->units[1].content_hashes, ElementsAre(300, 301, 302));
  EXPECT_THAT(journal->units[1].results,
              ElementsAre(ImageCheckResult::kClean, ImageCheckResult::kUnsound,
                          ImageCheckResult::kClean));
}

// A killed process leaves any part of its last record.
TEST(CheckJournalTest, DropsARecordThatIsNotWhole) {
  const std::string whole = JournalHeader(kKey) + Record(5);
  const std::string bytes = whole + Record(3);
  for (size_t size = whole.size(); size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    const auto journal = ParseJournal(cut);
    ASSERT_TRUE(journal.ok()) << size;
    EXPECT_EQ(journal->valid_bytes, whole.size());
    EXPECT_EQ(journal->units.size(), 1);
  }
}

TEST(CheckJournalTest, FindsEveryFlippedBit) {
  const std::string bytes = JournalHeader(kKey) + Record(5) + Record(3);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] ^= static_cast<char>(1 << i % 8);
    const auto journal = ParseJournal(damaged);
    EXPECT_TRUE(!journal.ok() || journal->units.size() < 2) << i;
  }
}

TEST(CheckJournalTest, RefusesWhatNoCheckWrites) {
  EXPECT_FALSE(ParseJournal("").ok());
  EXPECT_FALSE(ParseJournal(JournalHeader(kKey) + Record(9)).ok());
  const uint64_t hash = 1;
  const auto result = static_cast<ImageCheckResult>(4);
  EXPECT_FALSE(ParseJournal(JournalHeader(kKey) +
                            JournalRecord({1, {&hash, 1}, {&result, 1}}))
                   .ok());
}

TEST(CheckJournalTest, GoesOnBehindTheLastWholeRecord) {
  const std::string path = TestFolder() + "/journal";
  WriteFile(path, JournalHeader(kKey) + Record(5) + Record(3).substr(0, 30));
  {
    auto journal = CheckJournal::Open(path, kKey);
    ASSERT_TRUE(journal.ok()) << journal.status();
    EXPECT_TRUE(journal->done()[5]);
    EXPECT_FALSE(journal->done()[3]);
    EXPECT_THAT(journal->results(), ElementsAre(0, 3, 2, 0));
    const uint64_t hash = 7;
    const auto result = ImageCheckResult::kChanged;
    ASSERT_TRUE(journal->Append({1, {&hash, 1}, {&result, 1}}).ok());
    ASSERT_TRUE(journal->Sync().ok());
    // Nobody else writes it meanwhile.
    const absl::Status other = CheckJournal::Open(path, kKey).status();
    EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(other.message(), HasSubstr("another process is writing it"));
  }
  EXPECT_THAT(CheckJournal::Open(path, kKey)->results(),
              ElementsAre(0, 3, 2, 1));
  // Results of another index do not count.
  JournalKey other = kKey;
  other.index_checksum = 99;
  EXPECT_THAT(CheckJournal::Open(path, other)->results(),
              ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(ReadFile(path), JournalHeader(other));
}

}  // namespace
}  // namespace ballast
