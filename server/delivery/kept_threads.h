#ifndef BALLAST_SERVER_DELIVERY_KEPT_THREADS_H_
#define BALLAST_SERVER_DELIVERY_KEPT_THREADS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace ballast {

// Threads that help the caller with work that waits for others, such as
// requests to a store. They are started when there is something to do for them,
// and kept until the destructor.
class KeptThreads {
 public:
  // At most `most` threads work at the same time, with the caller's.
  explicit KeptThreads(uint32_t most) : most_(most) {}
  // Not during Run.
  ~KeptThreads();
  KeptThreads(const KeptThreads&) = delete;
  KeptThreads& operator=(const KeptThreads&) = delete;

  // Calls `work` once for each number below `count`, in their order, on several
  // threads, until a call returns false. Returns when all calls have returned.
  // One Run at a time.
  void Run(size_t count, const std::function<bool(size_t number)>& work);

  // Threads that have been started: all of them are kept.
  size_t started() const;

 private:
  void Start(size_t wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Help();
  // Calls `work_` for the next number, if there is one.
  bool DoNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint32_t most_;
  mutable Mutex mutex_;
  CondVar work_came_;
  CondVar work_done_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool warned_ ABSL_GUARDED_BY(mutex_) = false;
  // State of the present Run.
  const std::function<bool(size_t)>* work_ ABSL_GUARDED_BY(mutex_) = nullptr;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t busy_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_KEPT_THREADS_H_
