#include "server/delivery/worker_pool.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/cores.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<WorkerPool>> WorkerPool::Create(
    uint32_t threads) {
  threads = ThreadsOrCores(threads);
  std::unique_ptr<WorkerPool> pool(new WorkerPool);
  try {
    for (uint32_t i = 0; i < threads; ++i) {
      pool->threads_.emplace_back([p = pool.get()] { p->Work(); });
    }
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("serve.threads: the system gave ", pool->threads_.size(),
                     " of ", threads, " threads: ", error.what()));
  }
  return pool;
}

WorkerPool::~WorkerPool() { Stop(); }

void WorkerPool::AddTask(std::function<void()> task) {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    queue_.AddTask(std::move(task));
  }
  changed_.NotifyOne();
}

void WorkerPool::AddWatchTask(std::function<void()> task) {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    queue_.AddWatchTask(std::move(task));
  }
  changed_.NotifyOne();
}

void WorkerPool::AddItems(uint64_t distance, std::shared_ptr<WorkItems> items) {
  uint32_t wanted = items->items();
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    queue_.AddItems(distance, std::move(items));
    wanted = std::min(wanted, idle_);
  }
  // Wakes no more threads than there are items, since all of them take the
  // lock.
  for (uint32_t i = 0; i < wanted; ++i) changed_.NotifyOne();
}

bool WorkerPool::RemoveIfUntouched(const WorkItems* items) {
  MutexLock lock(&mutex_);
  return queue_.RemoveIfUntouched(items);
}

void WorkerPool::Stop() {
  WorkQueue dropped;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    std::swap(dropped, queue_);
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

WorkerPool::Load WorkerPool::load() const {
  MutexLock lock(&mutex_);
  return {queue_.tasks(), queue_.items(),
          static_cast<uint32_t>(threads_.size()), busy_};
}

void WorkerPool::Work() {
  bool busy = false;
  while (true) {
    std::optional<WorkQueue::Work> work;
    {
      MutexLock lock(&mutex_);
      if (busy) --busy_;
      busy = false;
      ++idle_;
      while (!stopping_ && queue_.empty()) changed_.Wait(&mutex_);
      --idle_;
      if (stopping_) return;
      work = queue_.Pop();
      busy = true;
      ++busy_;
    }
    // `work`, which may hold blocks, is destroyed before the next wait.
    work->Do();
  }
}

}  // namespace ballast
