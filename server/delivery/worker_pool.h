#ifndef BALLAST_SERVER_DELIVERY_WORKER_POOL_H_
#define BALLAST_SERVER_DELIVERY_WORKER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"

namespace ballast {

// Work divided into numbered items that may run in parallel, in any order: a
// block and its samples.
class WorkItems {
 public:
  virtual ~WorkItems() = default;
  // Must not change.
  virtual uint32_t items() const = 0;
  // Called once for each item below items(), possibly each on another thread.
  virtual void Run(uint32_t item) = 0;
};

// The order in which work is done. Tasks (short; most of them create more work)
// come before items. Items of the smallest distance come first; among equal
// distances the earliest addition comes first. But work is overtaken by at most
// kPatience later additions for each unit by which its distance exceeds theirs.
// Otherwise a client that takes blocks as fast as they are built would starve
// one whose next block was far away when it was added. Plain values, no threads
// or locks: thread-compatible.
class WorkQueue {
 public:
  // Either a task or one item.
  struct Work {
    std::function<void()> task;
    std::shared_ptr<WorkItems> items;
    uint32_t item = 0;

    void Do() {
      if (items != nullptr) {
        items->Run(item);
      } else {
        task();
      }
    }
  };

  void AddTask(std::function<void()> task);

  // A schedule takes as long as one to ten samples of photos.
  static constexpr uint64_t kItemsPerWatchTask = 64;

  // Adds a task that no rank waits for. Waiting watch tasks run in the order in
  // which they were added: at once if neither tasks nor items wait, otherwise
  // at most one after every kItemsPerWatchTask items. Any number of watchers
  // thereby takes only a bounded share of the work from ranks.
  void AddWatchTask(std::function<void()> task);

  // More additions than a server's streams make for a few blocks each, so that
  // it does not change the order while all keep up.
  static constexpr uint64_t kPatience = 64;

  // `items` has at least one item.
  void AddItems(uint64_t distance, std::shared_ptr<WorkItems> items);

  // Removes `items` if none of them has been popped. Returns whether it did.
  bool RemoveIfUntouched(const WorkItems* items);

  // nullopt if the queue is empty.
  std::optional<Work> Pop();

  // Number of waiting tasks of both kinds, and of waiting items.
  uint64_t tasks() const { return tasks_.size() + watch_tasks_.size(); }
  uint64_t items() const { return items_; }
  bool empty() const { return tasks() == 0 && by_turn_.empty(); }

 private:
  struct Pending {
    std::shared_ptr<WorkItems> items;
    uint32_t next_item = 0;
  };

  static Work Take(std::deque<std::function<void()>>* tasks);

  std::deque<std::function<void()>> tasks_;
  std::deque<std::function<void()>> watch_tasks_;
  uint64_t since_watch_task_ = 0;  // items popped since the last one
  uint64_t added_ = 0;             // calls of AddItems so far
  // The turn is the number of the addition, plus kPatience for each unit of its
  // distance. Oldest first among equals; no list is empty.
  std::map<uint64_t, std::deque<Pending>> by_turn_;
  uint64_t items_ = 0;  // in by_turn_, not popped
};

// Threads that help the caller with work that waits for something else, such as
// requests to a store. They are started when there is work for them, and kept
// until the destructor.
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

// Executes Loader's work: a thread pool (WorkerPool), or a test. The order of
// work is WorkQueue's. Thread-safe. Added work never runs on the calling thread
// before the call returns.
class Workers {
 public:
  virtual ~Workers() = default;

  // As WorkQueue. After Stop, added work is dropped.
  virtual void AddTask(std::function<void()> task) = 0;
  virtual void AddWatchTask(std::function<void()> task) = 0;
  virtual void AddItems(uint64_t distance,
                        std::shared_ptr<WorkItems> items) = 0;
  virtual bool RemoveIfUntouched(const WorkItems* items) = 0;

  struct Load {
    uint64_t tasks = 0;  // waiting
    uint64_t items = 0;  // waiting
    uint32_t threads = 0;
    uint32_t busy = 0;  // threads at work
  };
  // For statistics only.
  virtual Load load() const { return {}; }

  // Drops work that has not begun and waits for the rest. Must not be called
  // from a worker.
  virtual void Stop() = 0;
};

// Threads that execute the work of a WorkQueue. The lock is held to add or take
// work, never while working. Thread-safe.
class WorkerPool final : public Workers {
 public:
  // `threads` of 0 means one per core. Errors: RESOURCE_EXHAUSTED (the system
  // refuses so many threads).
  static absl::StatusOr<std::unique_ptr<WorkerPool>> Create(uint32_t threads);

  // Calls Stop().
  ~WorkerPool() override;

  void AddTask(std::function<void()> task) override;
  void AddWatchTask(std::function<void()> task) override;
  void AddItems(uint64_t distance, std::shared_ptr<WorkItems> items) override;
  bool RemoveIfUntouched(const WorkItems* items) override;
  void Stop() override;

  Load load() const override;

 private:
  WorkerPool() = default;
  void Work();

  mutable Mutex mutex_;
  CondVar changed_;
  WorkQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t busy_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t idle_ ABSL_GUARDED_BY(mutex_) = 0;  // waiting for work
  std::vector<std::thread> threads_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_WORKER_POOL_H_
