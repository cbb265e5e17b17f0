#include "common/grpc_log.h"

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

void OnGrpcLog(gpr_log_func_args* args) {
  const char* const slash = std::strrchr(args->file, '/');
  const absl::string_view message =
      absl::StripAsciiWhitespace(absl::string_view(args->message));
  Log(LevelOf(args->severity),
      absl::StrCat("grpc: ", message, " (",
                   slash == nullptr ? args->file : slash + 1, ":", args->line,
                   ")"));
}

}  // namespace

void SendGrpcLogToLog() { gpr_set_log_function(&OnGrpcLog); }

}  // namespace ballast
