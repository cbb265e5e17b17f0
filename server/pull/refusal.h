#ifndef BALLAST_SERVER_PULL_REFUSAL_H_
#define BALLAST_SERVER_PULL_REFUSAL_H_

#include <atomic>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"

namespace ballast {

// The reason why a server serves no rank, if there is one. Thread-safe;
// status() takes no lock while there is none.
class Refusal {
 public:
  // OK means that ranks are served from now on.
  void Set(absl::Status why) {
    MutexLock lock(&mutex_);
    is_set_.store(!why.ok(), std::memory_order_release);
    why_ = std::move(why);
  }

  // OK means that ranks are served.
  absl::Status status() const {
    if (!is_set_.load(std::memory_order_acquire)) return absl::OkStatus();
    MutexLock lock(&mutex_);
    return why_;
  }

 private:
  std::atomic<bool> is_set_ = false;
  mutable Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_REFUSAL_H_
