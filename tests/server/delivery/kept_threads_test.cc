#include "server/delivery/kept_threads.h"

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ballast
