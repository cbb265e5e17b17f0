#ifndef BALLAST_TRAINER_SHIM_BALLAST_RANK_FAILURE_H_
#define BALLAST_TRAINER_SHIM_BALLAST_RANK_FAILURE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/mutex.h"

namespace ballast {

// Stops every rank of a process once one has failed, and keeps the first
// failure. Thread-safe.
class Failure {
 public:
  explicit Failure(size_t ranks) : cancels_(ranks) {}

  // From now until Leave, a failure calls `cancel`; if a rank has failed
  // before, calls it at once.
  void Enter(size_t rank, std::function<void()> cancel) {
    MutexLock lock(&mutex_);
    if (!first_.ok()) cancel();
    cancels_[rank] = std::move(cancel);
  }
  void Leave(size_t rank) {
    MutexLock lock(&mutex_);
    cancels_[rank] = nullptr;
  }

  void Set(const absl::Status& status) {
    MutexLock lock(&mutex_);
    if (!first_.ok()) return;
    first_ = status;
    for (const auto& cancel : cancels_) {
      if (cancel) cancel();
    }
  }

  absl::Status first() {
    MutexLock lock(&mutex_);
    return first_;
  }

 private:
  Mutex mutex_;
  std::vector<std::function<void()>> cancels_ ABSL_GUARDED_BY(mutex_);
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
};

// Counts timings that no server took. They are only advice: losing one does not
// end a run. Thread-safe.
class LostReports {
 public:
  void Add(const absl::Status& why) {
    MutexLock lock(&mutex_);
    ++count_;
    last_ = why;
  }

  uint64_t count() const {
    MutexLock lock(&mutex_);
    return count_;
  }

  // A line for people; empty if none was lost.
  std::string Warning() const {
    MutexLock lock(&mutex_);
    if (count_ == 0) return "";
    return absl::StrCat(count_, " timings were taken by no server; the last: ",
                        last_.message());
  }

 private:
  mutable Mutex mutex_;
  uint64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BALLAST_RANK_FAILURE_H_
