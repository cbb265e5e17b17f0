#ifndef BALLAST_SERVER_DELIVERY_WORK_QUEUE_H_
#define BALLAST_SERVER_DELIVERY_WORK_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

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

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_WORK_QUEUE_H_
