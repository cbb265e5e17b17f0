#include "tests/simulation/sim_threads.h"

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/clock.h"
#include "common/mutex.h"

namespace ballast {
namespace {

// Two threads append to a list under a lock, `n` times each.
std::string Interleave(uint64_t seed, int n) {
  SimThreads::Options options;
  options.seed = seed;
  options.switch_chance = 0.5;
  Mutex mutex;
  std::string order;
  const absl::Status status = SimThreads::Run(options, [&] {
    const auto work = [&](char name) {
      for (int i = 0; i < n; ++i) {
        MutexLock lock(&mutex);
        order += name;
      }
    };
    std::thread a(work, 'a');
    std::thread b(work, 'b');
    a.join();
    b.join();
  });
  EXPECT_TRUE(status.ok()) << status;
  return order;
}

TEST(SimThreadsTest, ASeedGivesOneInterleavingAndSeedsGiveMany) {
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    orders.insert(Interleave(seed, 3));
    EXPECT_EQ(Interleave(seed, 3), Interleave(seed, 3));
  }
  EXPECT_GT(orders.size(), 10u);  // of 20, 6 over 3
}

TEST(SimThreadsTest, TimeMovesOnlyWhenAllThreadsWait) {
  absl::Duration took;
  const absl::Status status = SimThreads::Run({}, [&] {
    const absl::Time start = Clock::Real()->Now();
    std::vector<std::thread> threads;
    for (int hours = 1; hours <= 3; ++hours) {
      threads.emplace_back(
          [hours] { Clock::Real()->NewSleeper()->Sleep(absl::Hours(hours)); });
    }
    for (std::thread& thread : threads) thread.join();
    took = Clock::Real()->Now() - start;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GE(took, absl::Hours(3));
  EXPECT_LT(took, absl::Hours(3) + absl::Milliseconds(1));
}

TEST(SimThreadsTest, FindsADeadlock) {
  int found = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SimThreads::Options options;
    options.seed = seed;
    options.switch_chance = 0.5;
    // Abandoned with its threads.
    auto* mutexes = new Mutex[2];
    const absl::Status status = SimThreads::Run(options, [mutexes] {
      const auto take = [mutexes](int first) {
        MutexLock one(&mutexes[first]);
        MutexLock two(&mutexes[1 - first]);
      };
      std::thread other(take, 1);
      take(0);
      other.join();
    });
    if (!status.ok()) {
      ++found;
      EXPECT_EQ(status.message(), "deadlock: 2 threads wait for ever");
    }
  }
  EXPECT_GT(found, 0);
  EXPECT_LT(found, 50);
}

TEST(SimThreadsTest, AFrozenNodeStandsStill) {
  int steps_while_frozen = -1;
  const absl::Status status = SimThreads::Run({}, [&] {
    SimThreads& threads = *SimThreads::Current();
    int steps = 0;
    SimThread* node = threads.Start(1, [&] {
      for (; steps < 10; ++steps) {
        threads.SleepUntil(threads.Now() + absl::Seconds(1));
      }
    });
    threads.SleepUntil(threads.Now() + absl::Milliseconds(3500));
    threads.SetFrozen(1, true);
    const int before = steps;
    threads.SleepUntil(threads.Now() + absl::Hours(1));
    steps_while_frozen = steps - before;
    threads.SetFrozen(1, false);
    threads.Join(node);
    EXPECT_EQ(before, 3);
    EXPECT_EQ(steps, 10);
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(steps_while_frozen, 0);
}

// A library's own thread, as Arrow's allocator starts one with the program.
TEST(SimThreadsTest, LeavesThreadsOfTheSystemAlone) {
  std::atomic<bool> stop = false;
  std::atomic<int64_t> locked = 0;
  std::thread real([&] {
    Mutex mutex;
    while (!stop) {
      MutexLock lock(&mutex);
      ++locked;
    }
  });
  while (locked == 0) std::this_thread::yield();
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const int64_t before = locked;
    const std::string order = Interleave(seed, 20);
    EXPECT_EQ(order, Interleave(seed, 20));
    orders.insert(order);
    while (locked == before) std::this_thread::yield();
  }
  EXPECT_GT(orders.size(), 10u);
  stop = true;
  real.join();
}

TEST(SimThreadsTest, EndsARunThatIsStuckInALoop) {
  SimThreads::Options options;
  options.most_time = absl::Hours(1);
  const absl::Status status = SimThreads::Run(options, [] {
    SimThreads& threads = *SimThreads::Current();
    while (true) threads.SleepUntil(threads.Now() + absl::Seconds(1));
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

}  // namespace
}  // namespace ballast
