#include "common/log.h"

#include <unistd.h>

#include <atomic>
#include <string>

#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ballast {
namespace {

std::atomic<LogLevel> lowest_level{LogLevel::kInfo};

char Letter(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return 'D';
    case LogLevel::kInfo:
      return 'I';
    case LogLevel::kWarning:
      return 'W';
    case LogLevel::kError:
      return 'E';
  }
  return '?';
}

}  // namespace

void SetLogLevel(LogLevel lowest) { lowest_level = lowest; }

void Log(LogLevel level, absl::string_view message) {
  if (level < lowest_level) return;
  const std::string line =
      absl::StrCat(std::string(1, Letter(level)), " ",
                   absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(),
                                    absl::UTCTimeZone()),
                   " ", absl::StrReplaceAll(message, {{"\n", "\\n"}}), "\n");
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace ballast
