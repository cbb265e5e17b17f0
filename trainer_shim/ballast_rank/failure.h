#ifndef BALLAST_TRAINER_SHIM_BALLAST_RANK_FAILURE_H_
#define BALLAST_TRAINER_SHIM_BALLAST_RANK_FAILURE_H_

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"

namespace ballast {

// Stops every rank of a process once one has failed, and keeps the first
// failure. Thread-safe.
class Failure {
 public:
  explicit Failure(size_t ranks) : cancels_(ranks) {}

  // From now until Leave, a failure calls `cancel`; an earlier failure does so
  // at once.
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

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BALLAST_RANK_FAILURE_H_
