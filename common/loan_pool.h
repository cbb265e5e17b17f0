#ifndef BALLAST_COMMON_LOAN_POOL_H_
#define BALLAST_COMMON_LOAN_POOL_H_

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace ballast {

// Objects that threads borrow, one at a time each. Thread-safe.
template <typename T>
class LoanPool {
 public:
  // At least one, each made of `arguments`.
  template <typename... Arguments>
  explicit LoanPool(int count, const Arguments&... arguments) {
    for (int i = 0; i < std::max(1, count); ++i) {
      idle_.push_back(std::make_unique<T>(arguments...));
    }
  }

  // One of the objects, for a scope; waits until one is idle.
  class Loan {
   public:
    explicit Loan(LoanPool* pool) : pool_(pool) {
      MutexLock lock(&pool_->mutex_);
      while (pool_->idle_.empty()) pool_->returned_.Wait(&pool_->mutex_);
      object_ = std::move(pool_->idle_.back());
      pool_->idle_.pop_back();
    }
    ~Loan() {
      MutexLock lock(&pool_->mutex_);
      pool_->idle_.push_back(std::move(object_));
      pool_->returned_.NotifyOne();
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

    T* operator->() const { return object_.get(); }
    T* get() const { return object_.get(); }

   private:
    LoanPool* const pool_;
    std::unique_ptr<T> object_;
  };

 private:
  Mutex mutex_;
  CondVar returned_;
  std::vector<std::unique_ptr<T>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_COMMON_LOAN_POOL_H_
