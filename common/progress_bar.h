#ifndef BALLAST_COMMON_PROGRESS_BAR_H_
#define BALLAST_COMMON_PROGRESS_BAR_H_

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace ballast {

// A terminal line that overwrites the one before: begins with a carriage
// return, and ends in a line break once `done` is 1. `done` is clamped to 0..1.
// Pure.
inline std::string ProgressBar(absl::string_view what, double done,
                               absl::string_view more) {
  constexpr int kWidth = 30;
  done = done >= 0 ? std::min(done, 1.0) : 0.0;
  const int filled = static_cast<int>(done * kWidth);
  return absl::StrCat("\r", what, " [", std::string(filled, '#'),
                      std::string(kWidth - filled, '.'),
                      absl::StrFormat("] %3.0f%%  ", 100 * done), more,
                      done == 1 ? "\n" : "");
}

// The time until the work is done, as `done` of it (0..1) took `elapsed`
// seconds: "3 min left", "40 s left". Empty before the first of it is done.
// Pure.
inline std::string TimeLeft(double done, double elapsed) {
  if (!(done > 0) || done >= 1) return "";
  const double seconds = elapsed / done * (1 - done);
  if (seconds < 90) return absl::StrFormat("%.0f s left", seconds);
  if (seconds < 90 * 60) return absl::StrFormat("%.0f min left", seconds / 60);
  return absl::StrFormat("%.1f h left", seconds / 3600);
}

}  // namespace ballast

#endif  // BALLAST_COMMON_PROGRESS_BAR_H_
