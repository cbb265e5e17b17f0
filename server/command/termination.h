#ifndef BALLAST_SERVER_COMMAND_TERMINATION_H_
#define BALLAST_SERVER_COMMAND_TERMINATION_H_

#include <csignal>
#include <string>
#include <thread>

#include "absl/time/time.h"

namespace ballast {

// The signals of `serve`, which no handler ever sees: they are blocked, before
// any thread is made, so that every thread inherits it, and waited for.

// Blocks SIGTERM, SIGINT, SIGHUP, and SIGUSR1, which EndAtOnce uses.
void BlockServeSignals();

// Blocks until SIGTERM, SIGINT or SIGHUP comes and answers it; 0 after `most`.
int AwaitServeSignal(absl::Duration most);

// "SIGTERM"
std::string SignalName(int signal);

// While it lives SIGTERM and SIGINT end the process at once, with a line in the
// log that says `what` it was doing and the status that a shell gives who is
// killed so (143, 130). What it holds is the kernel's to free; an arena's file
// is removed by the next server (docs/operations.md). For times in which a
// signal would otherwise have to wait: opening the data, and draining.
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
