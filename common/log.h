#ifndef BALLAST_COMMON_LOG_H_
#define BALLAST_COMMON_LOG_H_

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ballast {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Writes one line to stderr: "I 2026-01-31T12:00:00.123Z message". Thread-safe;
// a line is one write, so lines of several threads do not mix. Line breaks
// inside `message` are written as "\n". Lines below the level set by
// SetLogLevel (kInfo at first) are dropped.
void Log(LogLevel level, absl::string_view message);
void SetLogLevel(LogLevel lowest);

// LogInfo("served ", n, " blocks"): the pieces as absl::StrCat takes them.
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
