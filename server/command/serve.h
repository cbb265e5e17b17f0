#ifndef BALLAST_SERVER_COMMAND_SERVE_H_
#define BALLAST_SERVER_COMMAND_SERVE_H_

#include <string>

#include "absl/time/time.h"
#include "common/command_line.h"

namespace ballast {

// Adds `serve`, which serves a configuration until SIGTERM or SIGINT, then
// drains.
void AddServe(CommandLine* line);

// What `serve` does with its signals, as a state machine without threads or
// clocks. SIGTERM and SIGINT end a server: at once while it starts; later it
// drains, within the time that is promised. Thread-compatible.
class SignalRule {
 public:
  enum class Phase {
    kStarting,  // the data is being opened
    kServing,
    kDraining,  // blocks in transmission are being sent
    kClosing,   // all streams have ended
  };
  enum class Act {
    kNone,
    kReload,
    kDrain,
    kEnd,  // the process must end now, with exit_status() and reason()
  };

  explicit SignalRule(absl::Duration promised) : promised_(promised) {}

  // Phases follow one another in their order.
  void SetPhase(Phase phase) { phase_ = phase; }

  // `signal` arrived: SIGHUP, SIGTERM or SIGINT. The first SIGTERM or SIGINT of
  // a server that serves drains it 100 ms later; one that follows earlier
  // counts as the same, since `timeout` and some shells send one to the process
  // and one to its group.
  Act OnSignal(int signal, absl::Time now);
  // No signal arrived until `now`.
  Act OnTime(absl::Time now);
  // When to call OnTime.
  absl::Time deadline() const;

  // After kDrain: the signal.
  int signal() const { return signal_; }
  // After kEnd. The status of a process killed by the signal (143, 130); at the
  // deadline 0 if all streams have ended, otherwise 1.
  int exit_status() const { return exit_status_; }
  const std::string& reason() const { return reason_; }

 private:
  const absl::Duration promised_;
  Phase phase_ = Phase::kStarting;
  int signal_ = 0;                             // that drains
  absl::Time first_ = absl::InfiniteFuture();  // when it came
  bool drains_ = false;
  int exit_status_ = 0;
  std::string reason_;
};

// "SIGTERM"
std::string SignalName(int signal);

// The signals of `serve`. No handler runs for them: they are blocked in every
// thread, and one thread waits for them until the process ends. So a signal acts whatever blocks the other threads, also while objects are
// being destroyed. Ending the process at once leaves the rest to the kernel;
// the next server removes the arena's file (docs/operations.md).
class ServeSignals {
 public:
  // Once a process, before any thread starts. From SIGTERM on the process ends
  // within `promised`, also after this is destroyed.
  explicit ServeSignals(absl::Duration promised);

  void SetPhase(SignalRule::Phase phase);
  // Waits at most `most` for SIGHUP, or the first SIGTERM or SIGINT, and
  // returns it; 0 if none came.
  int Await(absl::Duration most);

 private:
  struct State;
  static void Run(State* state);

  State* const state_;  // lives until the process ends
};

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_SERVE_H_
