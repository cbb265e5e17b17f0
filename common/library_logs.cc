#include "common/library_logs.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/log.h"

namespace ballast {
namespace {

LogLevel LevelOf(gpr_log_severity severity) {
  switch (severity) {
    case GPR_LOG_SEVERITY_DEBUG:
      return LogLevel::kDebug;
    case GPR_LOG_SEVERITY_INFO:
      return LogLevel::kInfo;
    case GPR_LOG_SEVERITY_ERROR:
      break;
  }
  return LogLevel::kWarning;
}

void LogLine(LogLevel level, absl::string_view library, const char* file,
             int line, absl::string_view message) {
  const char* const slash = std::strrchr(file, '/');
  Log(level,
      absl::StrCat(library, ": ", absl::StripAsciiWhitespace(message), " (",
                   slash == nullptr ? file : slash + 1, ":", line, ")"));
}

void OnGrpcLog(gpr_log_func_args* args) {
  LogLine(LevelOf(args->severity), "grpc", args->file, args->line,
          args->message);
}

// After a message of LOGLEVEL_FATAL the library ends the process.
void OnProtobufLog(google::protobuf::LogLevel level, const char* file, int line,
                   const std::string& message) {
  LogLine(level == google::protobuf::LOGLEVEL_INFO    ? LogLevel::kInfo
          : level == google::protobuf::LOGLEVEL_FATAL ? LogLevel::kError
                                                      : LogLevel::kWarning,
          "protobuf", file, line, message);
}

}  // namespace

void SendLibraryLogsToLog() {
  // Protocol Buffers' setting is not thread-safe.
  static const bool once = [] {
    google::protobuf::SetLogHandler(&OnProtobufLog);
    return true;
  }();
  static_cast<void>(once);
  gpr_set_log_function(&OnGrpcLog);
}

}  // namespace ballast
