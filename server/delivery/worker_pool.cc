#include "server/delivery/worker_pool.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/machine.h"
#include "common/threads.h"

namespace ballast {

namespace {

constexpr uint64_t kFarthest = uint64_t{1} << 40;

}  // namespace

void WorkQueue::AddTask(std::function<void()> task) {
  tasks_.push_back(std::move(task));
}

void WorkQueue::AddWatchTask(std::function<void()> task) {
  watch_tasks_.push_back(std::move(task));
}

void WorkQueue::AddItems(uint64_t distance, std::shared_ptr<WorkItems> items) {
  items_ += items->items();
  const uint64_t turn = added_++ + kPatience * std::min(distance, kFarthest);
  by_turn_[turn].push_back({std::move(items), 0});
}

bool WorkQueue::RemoveIfUntouched(const WorkItems* items) {
  for (auto turn = by_turn_.begin(); turn != by_turn_.end(); ++turn) {
    auto& pending = turn->second;
    const auto found = std::find_if(
        pending.begin(), pending.end(),
        [items](const Pending& p) { return p.items.get() == items; });
    if (found == pending.end()) continue;
    if (found->next_item != 0) return false;
    items_ -= items->items();
    pending.erase(found);
    if (pending.empty()) by_turn_.erase(turn);
    return true;
  }
  return false;
}

WorkQueue::Work WorkQueue::Take(std::deque<std::function<void()>>* tasks) {
  Work work{std::move(tasks->front()), nullptr, 0};
  tasks->pop_front();
  return work;
}

std::optional<WorkQueue::Work> WorkQueue::Pop() {
  if (!tasks_.empty()) return Take(&tasks_);
  if (!watch_tasks_.empty() &&
      (by_turn_.empty() || since_watch_task_ >= kItemsPerWatchTask)) {
    since_watch_task_ = 0;
    return Take(&watch_tasks_);
  }
  if (by_turn_.empty()) return std::nullopt;
  const auto nearest = by_turn_.begin();
  Pending& front = nearest->second.front();
  Work work{nullptr, front.items, front.next_item++};
  --items_;
  ++since_watch_task_;
  if (front.next_item == front.items->items()) {
    nearest->second.pop_front();
    if (nearest->second.empty()) by_turn_.erase(nearest);
  }
  return work;
}

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
  const absl::Status started = AddThreads(
      "fetch ahead", wanted, [this](size_t) { Help(); }, &threads_);
  if (started.ok() || std::exchange(warned_, true)) return;
  LogWarning(threads_.size(), " of ", wanted,
             " threads fetch ahead: ", started.message());
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

absl::StatusOr<std::unique_ptr<WorkerPool>> WorkerPool::Create(
    uint32_t threads) {
  threads = ThreadsOrCores(threads);
  std::unique_ptr<WorkerPool> pool(new WorkerPool);
  const absl::Status started = AddThreads(
      "build blocks", threads, [p = pool.get()](size_t) { p->Work(); },
      &pool->threads_);
  if (!started.ok()) {
    return Annotate(
        started, absl::StrCat("serve.threads: ", pool->threads_.size(), " of ",
                              threads, " threads run"));
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
