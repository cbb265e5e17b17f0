#ifndef BALLAST_TESTS_SIMULATION_SIM_THREADS_H_
#define BALLAST_TESTS_SIMULATION_SIM_THREADS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace ballast {

// SplitMix64: the same numbers from a seed on every machine.
class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return bits ^ (bits >> 31);
  }
  // Below `n`, which is at least 1.
  uint64_t Below(uint64_t n) { return Next() % n; }
  bool Chance(double p) {
    return static_cast<double>(Next() >> 11) * 0x1p-53 < p;
  }
  absl::Duration Between(absl::Duration least, absl::Duration most) {
    return least +
           absl::Nanoseconds(Below(1 + (most - least) / absl::Nanoseconds(1)));
  }

 private:
  uint64_t state_;
};

class SimThread;  // one simulated thread

// Runs a multi-threaded program in one thread of the system, as a function of a
// seed. Simulated threads take turns: one runs until it waits, or until the
// seed makes it give way where it takes or releases a mutex. Time is virtual:
// it moves only when every thread waits, and then to the next wait's end.
//
// A program that links sim_posix.cc needs no change: its mutexes, condition
// variables, threads, sleeps and clocks (std::, pthread_ and Clock::Real) are
// simulated while Run runs.
//
// Each thread belongs to a node, a number that it inherits from its creator.
// The threads of a frozen node do not run, as if it had got SIGSTOP.
class SimThreads {
 public:
  struct Options {
    uint64_t seed = 0;
    // Chance of giving way at a mutex.
    double switch_chance = 0;
    // Limits that no run reaches unless it is stuck in a loop.
    absl::Duration most_time = absl::Hours(48);
    uint64_t most_switches = 20'000'000;
  };

  // Runs `body` as the first thread of node 0 and returns when all threads have
  // ended. Errors: DEADLINE_EXCEEDED (a limit of the options), INTERNAL (all
  // threads wait for ever); threads that have not ended are then abandoned.
  static absl::Status Run(const Options& options, std::function<void()> body);

  // Null unless Run is running in this thread of the system. Its other threads
  // go on as they are, in real time; none may share a mutex with a simulated
  // one.
  static SimThreads* Current();

  absl::Time Now() const { return now_; }
  uint64_t switches() const { return switches_; }

  // Runs `event` at `time` between two threads. It must not wait.
  void At(absl::Time time, std::function<void()> event);

  // Waits until Notify(key), or until `deadline` (false).
  bool Wait(const void* key, absl::Time deadline = absl::InfiniteFuture());
  // Ends the waits for `key`: all, or a random one.
  void NotifyAll(const void* key);
  void NotifyOne(const void* key);
  void SleepUntil(absl::Time time);
  // Gives way by chance.
  void MayGiveWay();
  // Between these calls the running thread does not give way.
  void ForbidGivingWay() { ++forbidden_; }
  void AllowGivingWay() { --forbidden_; }

  SimThread* Start(int node, std::function<void()> body);
  // Waits until `thread` has ended, and frees it.
  void Join(SimThread* thread);
  void Detach(SimThread* thread);

  int node() const;  // of the running thread; 0 between two
  int self() const;  // the running thread's number, from 1; 0 between two
  void SetFrozen(int node, bool frozen);
  bool IsFrozen(int node) const;

  SimRandom& random() { return random_; }

 private:
  struct Timer {
    absl::Time time;
    uint64_t number;  // earlier first among equals
    std::function<void()> event;
    bool operator<(const Timer& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  explicit SimThreads(const Options& options);
  ~SimThreads();
  absl::Status Loop();
  void GiveWay();
  void MakeRunnable(SimThread* thread);
  void Wake(SimThread* thread, bool notified);
  static void Main();

  const Options options_;
  SimRandom random_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(24 * 365);
  uint64_t switches_ = 0;
  int forbidden_ = 0;
  SimThread* running_ = nullptr;
  std::vector<SimThread*> runnable_;
  std::map<int, std::vector<SimThread*>> frozen_;
  std::unordered_map<const void*, std::deque<SimThread*>> waiting_;
  std::priority_queue<Timer> timers_;
  uint64_t timers_made_ = 0;
  uint64_t waits_ = 0;
  uint64_t living_ = 0;
  int started_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_THREADS_H_
