#include "common/log.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"

namespace ballast {
namespace {

const absl::Time kTime = absl::FromUnixMillis(1'769'860'800'123);

std::string Captured(LogLevel level, const std::string& message) {
  testing::internal::CaptureStderr();
  Log(level, message);
  return testing::internal::GetCapturedStderr();
}

TEST(LogTest, ALineHasLevelTimeAndMessage) {
  EXPECT_EQ(FormatLogLine(LogFormat::kText, kTime, LogLevel::kWarning, "a b"),
            "W 2026-01-31T12:00:00.123Z a b\n");
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, kTime, LogLevel::kDebug, "a b"),
            R"({"time":"2026-01-31T12:00:00.123Z","level":"debug",)"
            "\"message\":\"a b\"}\n");
}

TEST(LogTest, AnEventIsAlwaysOneLine) {
  const std::string message = "first\nsecond \"quoted\" \\ \x01 \xff end";
  const std::string text =
      FormatLogLine(LogFormat::kText, kTime, LogLevel::kError, message);
  EXPECT_EQ(text,
            "E 2026-01-31T12:00:00.123Z first\\nsecond \"quoted\" \\ \\x01 "
            "\xff end\n");
  EXPECT_EQ(FormatLogLine(LogFormat::kText, kTime, LogLevel::kError,
                          "a\r\t\x1b[2J\x7f"),
            "E 2026-01-31T12:00:00.123Z a\\r\\t\\x1b[2J\\x7f\n");
  const std::string json =
      FormatLogLine(LogFormat::kJson, kTime, LogLevel::kError, message);
  EXPECT_EQ(json.find('\n'), json.size() - 1);
  EXPECT_EQ(nlohmann::json::parse(json)["message"],
            "first\nsecond \"quoted\" \\ \x01 \xef\xbf\xbd end");
}

TEST(LogTest, TheClockCanBeSet) {
  SetLogClock([] { return kTime; });
  EXPECT_EQ(Captured(LogLevel::kInfo, "now"),
            "I 2026-01-31T12:00:00.123Z now\n");
  SetLogClock(nullptr);
  EXPECT_FALSE(
      absl::StrContains(Captured(LogLevel::kInfo, "now"), "12:00:00.123"));
}

void ExpectLinesBelowTheLevelAreDropped() {
  EXPECT_EQ(Captured(LogLevel::kDebug, "no"), "");
  // A configuration's level applies until the user of the program sets one.
  SuggestLogLevel(LogLevel::kError);
  EXPECT_EQ(Captured(LogLevel::kWarning, "no"), "");
  SuggestLogLevel(LogLevel::kDebug);
  EXPECT_NE(Captured(LogLevel::kDebug, "yes"), "");
  SetLogLevel(LogLevel::kWarning);
  EXPECT_EQ(Captured(LogLevel::kInfo, "no"), "");
  SuggestLogLevel(LogLevel::kDebug);
  EXPECT_EQ(Captured(LogLevel::kInfo, "no"), "");
  EXPECT_NE(Captured(LogLevel::kWarning, "yes"), "");
}

// In a process of its own: another test may have set the level of this one.
TEST(LogTest, LinesBelowTheLevelAreDropped) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ExpectLinesBelowTheLevelAreDropped();
        exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(LogTest, ParsesNamesOfLevelsAndFormats) {
  EXPECT_EQ(ParseLogLevel("warning"), LogLevel::kWarning);
  EXPECT_EQ(ParseLogLevel("Warning"), std::nullopt);
  EXPECT_EQ(ParseLogFormat("json"), LogFormat::kJson);
  EXPECT_EQ(ParseLogFormat(""), std::nullopt);
}

}  // namespace
}  // namespace ballast
