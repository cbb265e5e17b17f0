#ifndef BALLAST_COMMON_MUTEX_H_
#define BALLAST_COMMON_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"

namespace ballast {

// std::mutex with Clang's thread-safety annotations. Abseil's Mutex is not used
// because Debian's Abseil is not built with ThreadSanitizer, which therefore
// cannot see its ordering and would report every guarded member as a race.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex for a scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* mutex_;
};

// Condition variable over Mutex. Wakes may be spurious: wait in a loop over the
// condition.
class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // False if `timeout` passed first.
  bool WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const bool woken =
        condition_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

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

#endif  // BALLAST_COMMON_MUTEX_H_
