#ifndef BALLAST_SERVER_SERVE_MONITOR_PROBLEM_BOARD_H_
#define BALLAST_SERVER_SERVE_MONITOR_PROBLEM_BOARD_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// GetStatusResponse.Problem.kind, in the order in which a status lists them:
// those that hold ranks up come first (docs/metrics.md).
inline constexpr absl::string_view kProblemKinds[] = {
    "not_serving", "meeting", "reads_fail",   "connections",
    "certificate", "reload",  "shared_memory"};

using Problems = std::vector<v1::GetStatusResponse::Problem>;

// In the order of kProblemKinds, the longest first; at most `most`.
void SortProblems(size_t most, Problems* problems);

// The conditions of a server that need a person, each until its cause is gone.
// Thread-safe.
class ProblemBoard {
 public:
  explicit ProblemBoard(Clock* clock = Clock::Real()) : clock_(clock) {}

  // From now on `subject` has a problem of `kind`, which `text` describes; or
  // none, if `text` is empty.
  void Set(absl::string_view kind, const std::string& subject,
           absl::string_view text);

  Problems List() const;

 private:
  struct Entry {
    std::string text;
    absl::Time since;
  };

  Clock* const clock_;
  mutable Mutex mutex_;
  // By kind and subject.
  std::map<std::pair<std::string, std::string>, Entry> entries_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_MONITOR_PROBLEM_BOARD_H_
