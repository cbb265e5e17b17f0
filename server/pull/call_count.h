#ifndef BALLAST_SERVER_PULL_CALL_COUNT_H_
#define BALLAST_SERVER_PULL_CALL_COUNT_H_

#include <algorithm>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/mutex.h"

namespace ballast {

// The calls that a drain waits for. gRPC's own Shutdown also waits for idle
// connections, which a client that nobody polls leaves open. Thread-safe.
class CallCount {
 public:
  void Begin() {
    MutexLock lock(&mutex_);
    ++calls_;
  }
  void End() {
    MutexLock lock(&mutex_);
    if (--calls_ == 0) none_.NotifyAll();
  }

  // Blocks until no call is open, or until `deadline`.
  void AwaitNone(absl::Time deadline) {
    MutexLock lock(&mutex_);
    while (calls_ != 0) {
      // An infinite wait does not fit the clock that CondVar uses.
      const absl::Duration left =
          std::min(deadline - absl::Now(), absl::Hours(1));
      if (left <= absl::ZeroDuration()) return;
      none_.WaitFor(&mutex_, absl::ToChronoNanoseconds(left));
    }
  }

 private:
  Mutex mutex_;
  CondVar none_;
  int64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_CALL_COUNT_H_
