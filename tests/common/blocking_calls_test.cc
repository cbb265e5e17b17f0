#include "common/blocking_calls.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/mutex.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// A gate at which calls wait until it is opened.
class Gate {
 public:
  void Pass() {
    MutexLock lock(&mutex_);
    ++waiting_;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(&mutex_);
    --waiting_;
    changed_.NotifyAll();
  }
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void AwaitWaiting(int calls) {
    MutexLock lock(&mutex_);
    while (waiting_ < calls) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(BlockingCallsTest, RunsCallsOfManyThreads) {
  BlockingCalls calls(4, Clock::Real());
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        int mine = 0;
        EXPECT_TRUE(calls.Run([&] { mine = ++done; }, absl::Hours(1)).ok());
        EXPECT_GT(mine, 0);  // it has run when Run returns
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 400);
  EXPECT_EQ(calls.stuck(), 0u);
}

TEST(BlockingCallsTest, ACallThatHangsTimesOut) {
  ManualClock clock;
  const auto gate = std::make_shared<Gate>();
  BlockingCalls calls(1, &clock);
  absl::Status hung;
  std::thread caller(
      [&] { hung = calls.Run([gate] { gate->Pass(); }, absl::Seconds(30)); });
  gate->AwaitWaiting(1);
  clock.AwaitSleepers(1);
  clock.Advance(absl::Seconds(29));
  clock.AwaitSleepers(1);
  clock.Advance(absl::Seconds(1));
  caller.join();
  EXPECT_EQ(hung.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(hung.message()), HasSubstr("within 30s"));
  EXPECT_EQ(calls.stuck(), 1u);

  // No room for another call that might hang.
  bool ran = false;
  const absl::Status refused =
      calls.Run([&ran] { ran = true; }, absl::Seconds(30));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(ran);

  gate->Open();
  while (calls.stuck() != 0) std::this_thread::yield();
  EXPECT_TRUE(calls.Run([&ran] { ran = true; }, absl::InfiniteDuration()).ok());
  EXPECT_TRUE(ran);
}

TEST(BlockingCallsTest, MayBeDestroyedWhileACallHangs) {
  ManualClock clock;
  const auto gate = std::make_shared<Gate>();
  const auto returned = std::make_shared<Gate>();
  {
    BlockingCalls calls(1, &clock);
    std::thread caller([&] {
      EXPECT_FALSE(calls
                       .Run(
                           [gate, returned] {
                             gate->Pass();
                             returned->Pass();
                           },
                           absl::Seconds(1))
                       .ok());
    });
    gate->AwaitWaiting(1);
    clock.AwaitSleepers(1);
    clock.Advance(absl::Seconds(1));
    caller.join();
  }
  gate->Open();
  returned->AwaitWaiting(1);
  returned->Open();
}

}  // namespace
}  // namespace ballast
