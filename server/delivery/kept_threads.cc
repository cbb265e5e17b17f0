#include "server/delivery/kept_threads.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "common/log.h"

namespace ballast {

KeptThreads::~KeptThreads() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    threads = std::exchange(threads_, {});
  }
  work_came_.NotifyAll();
  for (std::thread& thread : threads) thread.join();
}

void KeptThreads::Start(size_t wanted) {
  try {
    while (threads_.size() < wanted) {
      threads_.emplace_back([this] { Help(); });
    }
  } catch (const std::system_error& error) {
    if (std::exchange(warned_, true)) return;
    LogWarning("the system gave ", threads_.size(), " of ", wanted,
               " threads that fetch ahead: ", error.what());
  }
}

void KeptThreads::Run(size_t count, const std::function<bool(size_t)>& work) {
  MutexLock lock(&mutex_);
  work_ = &work;
  next_ = 0;
  count_ = count;
  const size_t others = std::min<size_t>(most_, count);
  if (others > 1) {
    Start(others - 1);
    work_came_.NotifyAll();
  }
  while (DoNext()) {
  }
  while (busy_ > 0) work_done_.Wait(&mutex_);
  work_ = nullptr;
}

bool KeptThreads::DoNext() {
  if (next_ >= count_) return false;
  const size_t number = next_++;
  const std::function<bool(size_t)>& work = *work_;
  ++busy_;
  mutex_.Unlock();
  const bool goes_on = work(number);
  mutex_.Lock();
  if (!goes_on) next_ = count_;
  if (--busy_ == 0 && next_ >= count_) work_done_.NotifyOne();
  return true;
}

void KeptThreads::Help() {
  MutexLock lock(&mutex_);
  while (!stop_) {
    if (!DoNext()) work_came_.Wait(&mutex_);
  }
}

size_t KeptThreads::started() const {
  MutexLock lock(&mutex_);
  return threads_.size();
}

}  // namespace ballast
