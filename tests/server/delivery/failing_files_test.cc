#include "server/delivery/failing_files.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

class FailingFilesTest : public ::testing::Test {
 protected:
  void Fail(uint64_t ordinal, const std::string& file,
            const std::string& reason = "Input/output error") {
    files_.Failed({0, ordinal, 1}, file, reason);
  }
  void Succeed(uint64_t ordinal) { files_.Succeeded({0, ordinal, 1}); }
  // Lines of the log that `action` writes.
  template <typename Action>
  size_t Lines(const Action& action) {
    ::testing::internal::CaptureStderr();
    action();
    const std::string log = ::testing::internal::GetCapturedStderr();
    last_log_ = log;
    return std::count(log.begin(), log.end(), '\n');
  }

  ManualClock clock_;
  FailingFiles files_{&clock_};
  std::string last_log_;
};

TEST_F(FailingFilesTest, AFileFailsUntilAllItsSamplesAreRead) {
  Succeed(1);
  EXPECT_TRUE(files_.List().empty());
  Fail(1, "a.tar");
  clock_.Advance(absl::Seconds(5));
  Fail(1, "a.tar");
  Fail(2, "a.tar", "Stale file handle");
  Fail(3, "b.tar");
  const auto list = files_.List();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].name, "a.tar");
  EXPECT_EQ(list[0].failures, 3u);
  EXPECT_EQ(list[0].lasts, absl::Seconds(5));
  EXPECT_EQ(list[0].reason, "Stale file handle");
  EXPECT_EQ(files_.failures(), 4u);
  Succeed(1);
  Succeed(7);  // of the same file, and it never failed
  EXPECT_EQ(files_.List().size(), 2u);
  Succeed(2);
  ASSERT_EQ(files_.List().size(), 1u);
  EXPECT_EQ(files_.List()[0].name, "b.tar");
  Succeed(3);
  EXPECT_TRUE(files_.List().empty());
}

// One module reads a sample's text, another its images.
TEST_F(FailingFilesTest, AnotherPartOfASampleIsAnotherRead) {
  files_.Failed({0, 1, 1}, "a.tar", "cannot open");
  files_.Succeeded({0, 1, 2});
  EXPECT_EQ(files_.List().size(), 1u);
}

// 93 lines a second were written by 32 ranks that asked for one file.
TEST_F(FailingFilesTest, TheLogSaysItOnceAFileAndMinute) {
  const auto outage = [&] {
    for (int second = 0; second < 180; ++second) {
      for (uint64_t rank = 0; rank < 32; ++rank) {
        files_.TriedAgain("a.tar", "a.tar: cannot open");
        Fail(rank, "a.tar", "cannot open");
      }
      clock_.Advance(absl::Seconds(1));
    }
  };
  EXPECT_LE(Lines(outage), 4u);
  EXPECT_THAT(last_log_, HasSubstr("cannot read a.tar: cannot open; 1919 more "
                                   "failures since the last line"));
  EXPECT_EQ(files_.failures(), 180u * 32);
  EXPECT_EQ(files_.tried_again(), 180u * 32);
  // Ranks that have gone elsewhere.
  clock_.Advance(FailingFiles::kForgottenAfter + absl::Seconds(1));
  EXPECT_TRUE(files_.List().empty());
}

TEST_F(FailingFilesTest, WhatIsKeptIsBounded) {
  Lines([&] {
    for (uint64_t i = 0; i < 3 * FailingFiles::kMostSamples; ++i) {
      Fail(i, absl::StrCat(i % 1000, ".tar"));
    }
  });
  EXPECT_EQ(files_.List().size(), FailingFiles::kMostFiles);
  EXPECT_EQ(files_.failures(), 3 * FailingFiles::kMostSamples);
}

}  // namespace
}  // namespace ballast
