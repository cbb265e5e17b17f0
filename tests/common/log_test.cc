#include "common/log.h"

#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <google/protobuf/struct.pb.h>
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"

namespace ballast {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Captured(gpr_log_severity severity, const char* message) {
  testing::internal::CaptureStderr();
  gpr_log_message("src/core/lib/socket.cc", 12, severity, message);
  return testing::internal::GetCapturedStderr();
}

TEST(LibraryLogsTest, GrpcMessagesHaveTheFormatOfTheLog) {
  SendLibraryLogsToLog();
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG);
  const std::string text =
      Captured(GPR_LOG_SEVERITY_ERROR, "      handshake failed\n at once");
  EXPECT_THAT(text, StartsWith("W "));
  EXPECT_THAT(text,
              EndsWith(" grpc: handshake failed\\n at once (socket.cc:12)\n"));
  EXPECT_THAT(Captured(GPR_LOG_SEVERITY_INFO, "x"), StartsWith("I "));
  EXPECT_EQ(Captured(GPR_LOG_SEVERITY_DEBUG, "x"), "");
  SetLogFormat(LogFormat::kJson);
  EXPECT_THAT(Captured(GPR_LOG_SEVERITY_ERROR, "a \"b\""),
              EndsWith("\"message\":\"grpc: a \\\"b\\\" (socket.cc:12)\"}\n"));
  SetLogFormat(LogFormat::kText);
}

// A string field with bytes that are not UTF-8, as in a damaged request.
TEST(LibraryLogsTest, ProtobufMessagesHaveTheFormatOfTheLog) {
  SendLibraryLogsToLog();
  const std::string wire("\x1a\x01\xff", 3);  // string_value = 3
  google::protobuf::Value value;
  testing::internal::CaptureStderr();
  value.ParseFromString(wire);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, StartsWith("W "));
  EXPECT_THAT(text, HasSubstr(" protobuf: String field "));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

const absl::Time kTime = absl::FromUnixMillis(1'769'860'800'123);

std::string CapturedLog(LogLevel level, const std::string& message) {
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
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, kTime, LogLevel::kError,
                          "\x7f\u009b\u202e"),
            R"({"time":"2026-01-31T12:00:00.123Z","level":"error",)"
            R"("message":"\u007f\u009b\u202e"})"
            "\n");
  EXPECT_EQ(nlohmann::json::parse(json)["message"],
            "first\nsecond \"quoted\" \\ \x01 \xef\xbf\xbd end");
}

TEST(LogTest, TheClockCanBeSet) {
  SetLogClock([] { return kTime; });
  EXPECT_EQ(CapturedLog(LogLevel::kInfo, "now"),
            "I 2026-01-31T12:00:00.123Z now\n");
  SetLogClock(nullptr);
  EXPECT_FALSE(
      absl::StrContains(CapturedLog(LogLevel::kInfo, "now"), "12:00:00.123"));
}

void ExpectLinesBelowTheLevelAreDropped() {
  EXPECT_EQ(CapturedLog(LogLevel::kDebug, "no"), "");
  // A configuration's level applies until the user of the program sets one.
  SuggestLogLevel(LogLevel::kError);
  EXPECT_EQ(CapturedLog(LogLevel::kWarning, "no"), "");
  SuggestLogLevel(LogLevel::kDebug);
  EXPECT_NE(CapturedLog(LogLevel::kDebug, "yes"), "");
  SetLogLevel(LogLevel::kWarning);
  EXPECT_EQ(CapturedLog(LogLevel::kInfo, "no"), "");
  SuggestLogLevel(LogLevel::kDebug);
  EXPECT_EQ(CapturedLog(LogLevel::kInfo, "no"), "");
  EXPECT_NE(CapturedLog(LogLevel::kWarning, "yes"), "");
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
