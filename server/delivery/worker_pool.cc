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

void WorkerPool::AddErrand(std::function<void()> errand) {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    queue_.AddErrand(std::move(errand));
  }
  changed_.NotifyOne();
}

void WorkerPool::AddRun(uint64_t distance, std::shared_ptr<ItemRun> run) {
  uint32_t wanted = run->items();
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    queue_.AddRun(distance, std::move(run));
    wanted = std::min(wanted, idle_);
  }
  // No more than have something to do: woken threads all want the lock.
  for (uint32_t i = 0; i < wanted; ++i) changed_.NotifyOne();
}

bool WorkerPool::RemoveIfUntouched(const ItemRun* run) {
  MutexLock lock(&mutex_);
  return queue_.RemoveIfUntouched(run);
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
  return {queue_.errands(), queue_.items(),
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
    // What the work holds, blocks among it, is let go of before the next wait.
    work->Do();
  }
}

}  // namespace ballast
