#include "common/log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "common/mutex.h"
#include "common/table.h"

namespace ballast {

namespace {

constexpr std::array<const char*, 4> kLevelNames = {"debug", "info", "warning",
                                                    "error"};
constexpr std::array<const char*, 2> kFormatNames = {"text", "json"};

// Index of `name` in the list; absent if not found.
template <typename Names>
std::optional<size_t> Find(const Names& names, absl::string_view name) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return i;
  }
  return std::nullopt;
}

absl::string_view FromEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Settings {
  Settings() {
    const auto level = ParseLogLevel(FromEnvironment("BALLAST_LOG_LEVEL"));
    if (level.has_value()) this->level = *level;
    level_is_set = level.has_value();
    const auto format = ParseLogFormat(FromEnvironment("BALLAST_LOG_FORMAT"));
    if (format.has_value()) this->format = *format;
  }

  std::atomic<LogLevel> level{LogLevel::kInfo};
  std::atomic<bool> level_is_set{false};
  std::atomic<LogFormat> format{LogFormat::kText};
  std::atomic<absl::Time (*)()> clock{nullptr};
};

// Never destroyed: threads may log until the process ends.
Settings& TheSettings() {
  static Settings* const settings = new Settings;
  return *settings;
}

}  // namespace

std::optional<LogLevel> ParseLogLevel(absl::string_view name) {
  const std::optional<size_t> place = Find(kLevelNames, name);
  if (!place.has_value()) return std::nullopt;
  return static_cast<LogLevel>(*place);
}

std::optional<LogFormat> ParseLogFormat(absl::string_view name) {
  const std::optional<size_t> place = Find(kFormatNames, name);
  if (!place.has_value()) return std::nullopt;
  return static_cast<LogFormat>(*place);
}

void SetLogLevel(LogLevel lowest) {
  TheSettings().level_is_set = true;
  TheSettings().level = lowest;
}

void SuggestLogLevel(LogLevel lowest) {
  if (!TheSettings().level_is_set) TheSettings().level = lowest;
}

void SetLogFormat(LogFormat format) { TheSettings().format = format; }
LogLevel CurrentLogLevel() { return TheSettings().level; }
LogFormat CurrentLogFormat() { return TheSettings().format; }
void SetLogClock(absl::Time (*now)()) { TheSettings().clock = now; }

std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level,
                          absl::string_view message) {
  const char* const name = kLevelNames[static_cast<size_t>(level)];
  const std::string when =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
  if (format == LogFormat::kJson) {
    nlohmann::ordered_json line;
    line["time"] = when;
    line["level"] = name;
    line["message"] = std::string(message);
    // In ASCII alone: other controls of terminals are characters, too.
    return absl::StrCat(
        line.dump(-1, ' ', true,
                  nlohmann::ordered_json::error_handler_t::replace),
        "\n");
  }
  // D, I, W, E.
  return absl::StrCat(std::string(1, static_cast<char>(name[0] - 'a' + 'A')),
                      " ", when, " ", OneLine(message), "\n");
}

void Log(LogLevel level, absl::string_view message) {
  if (level < CurrentLogLevel()) return;
  absl::Time (*const clock)() = TheSettings().clock;
  const std::string line =
      FormatLogLine(CurrentLogFormat(),
                    clock != nullptr ? clock() : absl::Now(), level, message);
  // A pipe splits writes longer than PIPE_BUF.
  static Mutex* const mutex = new Mutex;
  MutexLock lock(mutex);
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t written =
        write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    // A failure to write the log cannot be reported anywhere.
    if (written <= 0) return;
    done += written;
  }
}

namespace {

LogLevel GetLevel(gpr_log_severity severity) {
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
  LogLine(GetLevel(args->severity), "grpc", args->file, args->line,
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
