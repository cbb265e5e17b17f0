#include "server/delivery/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"

namespace ballast {
namespace {

// Returns once `wanted` threads wait here.
class Barrier {
 public:
  explicit Barrier(size_t wanted) : wanted_(wanted) {}
  void Wait() {
    MutexLock lock(&mutex_);
    if (++here_ == wanted_) all_came_.NotifyAll();
    while (here_ < wanted_) all_came_.Wait(&mutex_);
  }

 private:
  const size_t wanted_;
  Mutex mutex_;
  CondVar all_came_;
  size_t here_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(KeptThreadsTest, DoesAllInTheirOrderOnOneThread) {
  KeptThreads threads(1);
  std::vector<size_t> done;
  threads.Run(4, [&](size_t i) {
    done.push_back(i);
    return true;
  });
  EXPECT_EQ(done, (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(threads.started(), 0u);
}

TEST(KeptThreadsTest, StartsWhatIsUsefulAndKeepsIt) {
  KeptThreads threads(4);
  threads.Run(0, [](size_t) { return true; });
  threads.Run(1, [](size_t) { return true; });
  EXPECT_EQ(threads.started(), 0u);
  std::set<std::thread::id> before;
  for (int run = 0; run < 50; ++run) {
    // Each call waits for three others: no thread does two of them.
    Barrier four(4);
    Mutex mutex;
    std::set<std::thread::id> ids;
    threads.Run(4, [&](size_t) {
      four.Wait();
      MutexLock lock(&mutex);
      ids.insert(std::this_thread::get_id());
      return true;
    });
    EXPECT_EQ(ids.size(), 4u);
    EXPECT_EQ(threads.started(), 3u);
    // The same threads each time.
    if (run > 0) {
      EXPECT_EQ(ids, before);
    }
    before = ids;
  }
}

TEST(KeptThreadsTest, CallsEachNumberOnce) {
  KeptThreads threads(3);
  for (int run = 0; run < 100; ++run) {
    std::vector<std::atomic<int>> calls(40);
    threads.Run(calls.size(), [&](size_t i) {
      ++calls[i];
      return true;
    });
    for (const auto& count : calls) EXPECT_EQ(count, 1);
  }
  EXPECT_EQ(threads.started(), 2u);
}

TEST(KeptThreadsTest, EndsEarlyWhenACallSaysSo) {
  KeptThreads threads(2);
  std::atomic<int> calls{0};
  threads.Run(1000, [&](size_t) {
    ++calls;
    return false;
  });
  EXPECT_GE(calls, 1);
  EXPECT_LE(calls, 2);
  // The next run is a new one.
  calls = 0;
  threads.Run(5, [&](size_t) {
    ++calls;
    return true;
  });
  EXPECT_EQ(calls, 5);
}

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
