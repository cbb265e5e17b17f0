#ifndef BALLAST_SERVER_DELIVERY_FAILING_FILES_H_
#define BALLAST_SERVER_DELIVERY_FAILING_FILES_H_

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/instruments.h"
#include "common/mutex.h"

namespace ballast {

// The files with samples that cannot be read now, for a cause that may pass.
// Ranks that need such a sample wait for it. Each file has one line a minute in
// the log, however many ranks ask. Thread-safe.
class FailingFiles {
 public:
  // Most files and samples in the list. Further failures are counted and
  // logged, and not listed.
  static constexpr size_t kMostFiles = 64;
  static constexpr size_t kMostSamples = 1024;
  static constexpr absl::Duration kBetweenLines = absl::Minutes(1);
  // A file of which nobody has asked for a sample for so long no longer counts.
  static constexpr absl::Duration kForgottenAfter = absl::Minutes(5);

  explicit FailingFiles(Clock* clock = Clock::Real()) : clock_(clock) {}

  // A part of a sample, which one build reads.
  struct Part {
    uint32_t source = 0;
    uint64_t ordinal = 0;
    int module = 0;
    auto operator<=>(const Part&) const = default;
  };

  // A read of `file` failed and is tried again at once.
  void TriedAgain(const std::string& file, absl::string_view reason);
  // `part`, a sample of `file`, cannot be read.
  void Failed(const Part& part, const std::string& file,
              absl::string_view reason);
  // `part` has been read. Costs one load while nothing fails.
  void Succeeded(const Part& part) {
    if (any_.load(std::memory_order_relaxed)) Forget(part);
  }

  struct File {
    std::string name;
    std::string reason;  // of the last failure
    absl::Duration lasts;
    uint64_t failures = 0;
  };
  // The longest first.
  std::vector<File> List() const;

  // Since the server began to serve.
  uint64_t failures() const { return failures_.value(); }
  uint64_t tried_again() const { return tried_again_.value(); }

 private:
  struct Entry {
    std::string reason;
    absl::Time since;
    absl::Time last;
    uint64_t failures = 0;
    size_t parts = 0;  // in parts_
  };
  struct Line {
    absl::Time last = absl::InfinitePast();
    uint64_t left_out = 0;
  };

  void Forget(const Part& part);
  void DropForgotten(absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether the log says it now, and adds to `line` how often it has
  // not.
  bool MayLog(const std::string& file, absl::Time now, std::string* line)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Clock* const clock_;
  Counter failures_;
  Counter tried_again_;
  mutable std::atomic<bool> any_{false};  // whether parts_ has entries
  mutable Mutex mutex_;
  mutable std::map<std::string, Entry> files_ ABSL_GUARDED_BY(mutex_);
  mutable std::map<Part, std::string> parts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Line> lines_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_FAILING_FILES_H_
