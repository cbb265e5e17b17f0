#include "server/delivery/work_queue.h"

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace ballast {
namespace {

// Appends its name and the item's number to a log.
class LoggedRun : public WorkItems {
 public:
  LoggedRun(char name, uint32_t items, std::string* log)
      : name_(name), items_(items), log_(log) {}
  uint32_t items() const override { return items_; }
  void Run(uint32_t item) override {
    *log_ += name_;
    *log_ += std::to_string(item) + " ";
  }

 private:
  const char name_;
  const uint32_t items_;
  std::string* const log_;
};

void DoAll(WorkQueue* queue) {
  while (auto work = queue->Pop()) work->Do();
}

TEST(WorkQueueTest, TasksThenTheNearestRunsThenTheOldest) {
  std::string log;
  WorkQueue queue;
  queue.AddItems(2, std::make_shared<LoggedRun>('a', 2, &log));
  queue.AddItems(1, std::make_shared<LoggedRun>('b', 1, &log));
  queue.AddItems(1, std::make_shared<LoggedRun>('c', 2, &log));
  queue.AddTask([&log] { log += "task "; });
  EXPECT_FALSE(queue.empty());
  DoAll(&queue);
  EXPECT_EQ(log, "task b0 c0 c1 a0 a1 ");
  EXPECT_TRUE(queue.empty());
}

TEST(WorkQueueTest, ALaterButNearerRunGoesFirst) {
  std::string log;
  WorkQueue queue;
  queue.AddItems(5, std::make_shared<LoggedRun>('a', 3, &log));
  queue.Pop()->Do();
  queue.AddItems(0, std::make_shared<LoggedRun>('b', 1, &log));
  DoAll(&queue);
  EXPECT_EQ(log, "a0 b0 a1 a2 ");
}

// A client that takes blocks as soon as they are built adds, for each one done,
// a run nearer than the waiting one. The waiting one must still get its turn.
TEST(WorkQueueTest, StarvesNoRun) {
  std::string log;
  WorkQueue queue;
  queue.AddItems(3, std::make_shared<LoggedRun>('w', 1, &log));
  uint64_t passed = 0;
  while (log.find('w') == std::string::npos) {
    ASSERT_LE(passed, 2 * WorkQueue::kPatience);
    queue.AddItems(1, std::make_shared<LoggedRun>('n', 1, &log));
    queue.Pop()->Do();
    ++passed;
  }
  EXPECT_GE(passed, WorkQueue::kPatience);
}

// Watchers that ask again as soon as they are answered get one turn in
// kItemsPerWatchTask items, for any number of watchers.
TEST(WorkQueueTest, WatchTasksTakeABoundedShareOfTheTurns) {
  constexpr uint64_t kTurns = 10;
  constexpr uint64_t kItems = kTurns * WorkQueue::kItemsPerWatchTask;
  for (const int watchers : {1, 12, 1000}) {
    std::string log;
    WorkQueue queue;
    uint64_t watched = 0;
    std::function<void()> watch = [&] {
      ++watched;
      queue.AddWatchTask(watch);
    };
    queue.AddItems(0, std::make_shared<LoggedRun>('a', kItems, &log));
    for (int i = 0; i < watchers; ++i) queue.AddWatchTask(watch);
    while (queue.items() > 0) queue.Pop()->Do();
    EXPECT_EQ(watched, kTurns - 1) << watchers;
  }
}

TEST(WorkQueueTest, RunsWatchTasksOfAnIdleQueueAfterItsTasks) {
  std::string log;
  WorkQueue queue;
  queue.AddWatchTask([&log] { log += "watch1 "; });
  queue.AddWatchTask([&log] { log += "watch2 "; });
  queue.AddTask([&log] { log += "task "; });
  EXPECT_EQ(queue.tasks(), 3u);
  DoAll(&queue);
  EXPECT_EQ(log, "task watch1 watch2 ");
  EXPECT_TRUE(queue.empty());
}

TEST(WorkQueueTest, RemovesARunOnlyBeforeItsFirstItem) {
  std::string log;
  WorkQueue queue;
  auto begun = std::make_shared<LoggedRun>('a', 2, &log);
  auto untouched = std::make_shared<LoggedRun>('b', 3, &log);
  queue.AddItems(1, begun);
  queue.AddItems(1, untouched);
  queue.Pop()->Do();
  EXPECT_FALSE(queue.RemoveIfUntouched(begun.get()));
  EXPECT_TRUE(queue.RemoveIfUntouched(untouched.get()));
  EXPECT_EQ(untouched.use_count(), 1);
  EXPECT_FALSE(queue.RemoveIfUntouched(untouched.get()));  // not in the queue
  DoAll(&queue);
  EXPECT_EQ(log, "a0 a1 ");
}

}  // namespace
}  // namespace ballast
