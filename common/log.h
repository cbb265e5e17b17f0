#ifndef BALLAST_COMMON_LOG_H_
#define BALLAST_COMMON_LOG_H_

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ballast {

// The log of a process: stderr, one line an event, nothing for each sample.
//
//   debug     for whoever looks for a fault: streams that begin and end
//   info      what an operator expects to see: ready, draining, reloaded
//   warning   something failed and was borne: a bad sample, another server
//   error     something failed and nothing makes up for it
//
// The environment's BALLAST_LOG_LEVEL (debug, info, warning, error) and
// BALLAST_LOG_FORMAT (text, json) are where level and format begin, so that a
// trainer that links the shim has them too; --log-level and --log-format of
// every program win over them.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

enum class LogFormat {
  kText,  // I 2026-01-31T12:00:00.123Z message
  kJson,  // {"time":"2026-01-31T12:00:00.123Z","level":"info","message":"..."}
};

// Writes one line. Thread-safe; a line is one write, so lines of several
// threads do not mix. Line breaks inside `message` are written as "\n". Lines
// below the level (info at first) are dropped.
void Log(LogLevel level, absl::string_view message);

// From here on; over all that was said before. Thread-safe, as are all below.
void SetLogLevel(LogLevel lowest);
void SetLogFormat(LogFormat format);
// The level of a configuration file: counts until SetLogLevel or
// BALLAST_LOG_LEVEL says otherwise, whichever came first.
void SuggestLogLevel(LogLevel lowest);

LogLevel CurrentLogLevel();
LogFormat CurrentLogFormat();

// Where lines have their time from; null: the system's clock.
void SetLogClock(absl::Time (*now)());

// By name, as above. Nothing for other names.
std::optional<LogLevel> ParseLogLevel(absl::string_view name);
std::optional<LogFormat> ParseLogFormat(absl::string_view name);

// The line with its line break. Bytes of `message` that are no UTF-8 become
// U+FFFD in JSON. Pure.
std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level,
                          absl::string_view message);

// LogInfo("served ", n, " blocks"): the pieces as absl::StrCat takes them.
template <typename... Piece>
void LogDebug(const Piece&... pieces) {
  if (CurrentLogLevel() == LogLevel::kDebug) {
    Log(LogLevel::kDebug, absl::StrCat(pieces...));
  }
}
template <typename... Piece>
void LogInfo(const Piece&... pieces) {
  Log(LogLevel::kInfo, absl::StrCat(pieces...));
}
template <typename... Piece>
void LogWarning(const Piece&... pieces) {
  Log(LogLevel::kWarning, absl::StrCat(pieces...));
}
template <typename... Piece>
void LogError(const Piece&... pieces) {
  Log(LogLevel::kError, absl::StrCat(pieces...));
}

}  // namespace ballast

#endif  // BALLAST_COMMON_LOG_H_
