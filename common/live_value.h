#ifndef BALLAST_COMMON_LIVE_VALUE_H_
#define BALLAST_COMMON_LIVE_VALUE_H_

#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace ballast {

// A setting that can be replaced while in use: each Get returns the value of
// one Set. For occasional reads (one per call or sample), not for inner loops.
// Thread-safe.
template <typename T>
class LiveValue {
 public:
  explicit LiveValue(T value) : value_(std::move(value)) {}

  T Get() const {
    MutexLock lock(&mutex_);
    return value_;
  }
  void Set(T value) {
    MutexLock lock(&mutex_);
    value_ = std::move(value);
  }

 private:
  mutable Mutex mutex_;
  T value_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_COMMON_LIVE_VALUE_H_
