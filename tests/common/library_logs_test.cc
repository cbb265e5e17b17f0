#include "common/library_logs.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include "common/log.h"

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

}  // namespace
}  // namespace ballast
