#ifndef BALLAST_SERVER_COMMAND_TERMINATION_H_
#define BALLAST_SERVER_COMMAND_TERMINATION_H_

#include <csignal>
#include <string>
#include <thread>

#include "absl/time/time.h"

namespace ballast {

// The signals of `serve`. No handler runs for them. They are blocked before any
// thread starts, so that every thread inherits the mask, and are then waited
// for.

// Blocks SIGTERM, SIGINT, SIGHUP, and SIGUSR1, which EndAtOnce uses.
void BlockServeSignals();

// Waits at most `most` for SIGTERM, SIGINT or SIGHUP and returns it; 0 if none
// came.
int AwaitServeSignal(absl::Duration most);

// "SIGTERM"
std::string SignalName(int signal);

// While this object exists, SIGTERM and SIGINT end the process at once. `what`
// is the activity that the log line names. The exit status is that of a process
// killed by the signal (143, 130). The kernel frees its resources; the next
// server removes the arena's file (docs/operations.md). Use it in phases in
// which a signal would otherwise have to wait: opening the data, and draining.
class EndAtOnce {
 public:
  explicit EndAtOnce(std::string what);
  ~EndAtOnce();
  EndAtOnce(const EndAtOnce&) = delete;
  EndAtOnce& operator=(const EndAtOnce&) = delete;

 private:
  std::thread thread_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_TERMINATION_H_
