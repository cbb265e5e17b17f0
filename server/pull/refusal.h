#ifndef BALLAST_SERVER_SERVICE_REFUSAL_H_
#define BALLAST_SERVER_SERVICE_REFUSAL_H_

#include <atomic>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"

namespace ballast {

// Why a server serves no rank, once there is a reason; for as long as the
// process lives. Thread-safe; asking takes no lock while there is none.
class Refusal {
 public:
  // The first reason counts. `why` is not OK.
  void Set(absl::Status why) {
    MutexLock lock(&mutex_);
    if (!why_.ok()) return;
    why_ = std::move(why);
    is_set_.store(true, std::memory_order_release);
  }

  // OK: ranks are served.
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

#endif  // BALLAST_SERVER_SERVICE_REFUSAL_H_
