#ifndef BALLAST_COMMON_LOG_H_
#define BALLAST_COMMON_LOG_H_

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ballast {

// The log of a process: stderr, one line per event, nothing per sample.
//
//   debug     for finding a fault: streams that begin and end
//   info      expected events: ready, draining, reloaded
//   warning   a failure that was compensated: a bad sample, another server
//   error     a failure that was not compensated
//
// The environment sets the initial level and format, also for a trainer that
// links the shim: BALLAST_LOG_LEVEL (debug, info, warning, error) and
// BALLAST_LOG_FORMAT (text, json). Every program's --log-level and --log-format
// override them.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

enum class LogFormat {
  kText,  // I 2026-01-31T12:00:00.123Z message
  kJson,  // {"time":"2026-01-31T12:00:00.123Z","level":"info","message":"..."}
};

// Writes one line. Thread-safe; a line is one write, so lines of several
// threads do not mix. `message` is written as OneLine (table.h) makes it. Lines
// below the level (info at first) are dropped.
void Log(LogLevel level, absl::string_view message);

// Both override all earlier settings. Thread-safe, as are all functions below.
void SetLogLevel(LogLevel lowest);
void SetLogFormat(LogFormat format);
// The level from a configuration file: applies unless SetLogLevel or
// BALLAST_LOG_LEVEL sets a level, before or after this call.
void SuggestLogLevel(LogLevel lowest);

LogLevel CurrentLogLevel();
LogFormat CurrentLogFormat();

// Sets the clock of the lines' times; null: the system's clock.
void SetLogClock(absl::Time (*now)());

// Parses a level's or format's name; absent for other names.
std::optional<LogLevel> ParseLogLevel(absl::string_view name);
std::optional<LogFormat> ParseLogFormat(absl::string_view name);

// Formats a line, with its line break. In JSON, bytes of `message` that are not
// UTF-8 become U+FFFD. Pure.
std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level,
                          absl::string_view message);

// LogInfo("served ", n, " blocks"): takes the same pieces as absl::StrCat.
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

// From now on sends the messages of gRPC (a failed handshake, a peer that pings
// too often; more with $GRPC_VERBOSITY and $GRPC_TRACE) and of Protocol Buffers
// (text that is not UTF-8) to the log of the process (common/log.h) instead of
// stderr. Errors become warnings, since the caller reports any error that ends
// a call or the program; other levels stay. Each copy of the libraries has its
// own setting: programs call this, and so do libraries that contain a copy.
// Thread-safe; may be called again.
void SendLibraryLogsToLog();

}  // namespace ballast

#endif  // BALLAST_COMMON_LOG_H_
