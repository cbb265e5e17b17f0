#ifndef BALLAST_SERVER_DELIVERY_WORK_QUEUE_H_
#define BALLAST_SERVER_DELIVERY_WORK_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

namespace ballast {

// Work that falls into numbered items which may run in parallel, in any order:
// a block and its samples.
class ItemRun {
 public:
  virtual ~ItemRun() = default;
  // Does not change.
  virtual uint32_t items() const = 0;
  // Called once for each item below items(), each from any thread.
  virtual void Run(uint32_t item) = 0;
};

// In which order work is done. Errands (short; most of them open up new work)
// come before items; items of the smallest distance first, and among equals in
// the order in which their runs were added. But a run is passed by no more than
// kPatience later ones for each unit that its distance is above theirs: a
// client that takes blocks as fast as they are built would else keep another
// from its next one for ever, which was far away when it was added. Plain
// values, no threads or locks: thread-compatible.
class WorkQueue {
 public:
  // Either an errand, or one item of a run.
  struct Work {
    std::function<void()> errand;
    std::shared_ptr<ItemRun> run;
    uint32_t item = 0;

    void Do() {
      if (run != nullptr) {
        run->Run(item);
      } else {
        errand();
      }
    }
  };

  void AddErrand(std::function<void()> errand);

  // More than the streams of a server for a few blocks each, so that it does
  // not change what comes first while all keep up.
  static constexpr uint64_t kPatience = 64;

  // `run` has at least one item.
  void AddRun(uint64_t distance, std::shared_ptr<ItemRun> run);

  // Takes `run` out if none of its items has been popped; answers whether it
  // has, and is to be forgotten.
  bool RemoveIfUntouched(const ItemRun* run);

  // Nothing when the queue is empty.
  std::optional<Work> Pop();

  // Errands, and items of runs, that wait.
  uint64_t errands() const { return errands_.size(); }
  uint64_t items() const { return items_; }
  bool empty() const { return errands_.empty() && runs_.empty(); }

 private:
  struct Pending {
    std::shared_ptr<ItemRun> run;
    uint32_t next_item = 0;
  };

  std::deque<std::function<void()>> errands_;
  uint64_t added_ = 0;  // runs so far
  // By the number of the run, and kPatience for each unit of its distance;
  // oldest first among equals; none is empty.
  std::map<uint64_t, std::deque<Pending>> runs_;
  uint64_t items_ = 0;  // of runs_, not popped
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_WORK_QUEUE_H_
