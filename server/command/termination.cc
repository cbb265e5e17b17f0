#include "server/command/termination.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace ballast {
namespace {

sigset_t SetOf(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

}  // namespace

void BlockServeSignals() {
  const sigset_t set = SetOf({SIGTERM, SIGINT, SIGHUP, SIGUSR1});
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

int AwaitServeSignal(absl::Duration most) {
  const sigset_t set = SetOf({SIGTERM, SIGINT, SIGHUP});
  const timespec wait = absl::ToTimespec(most);
  const int signal = sigtimedwait(&set, nullptr, &wait);
  // Returns 0 also if a debugger interrupts the wait.
  return signal > 0 ? signal : 0;
}

std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal)
                         : absl::StrCat("SIG", name);
}

EndAtOnce::EndAtOnce(std::string what)
    : thread_([what = std::move(what)] {
        const sigset_t set = SetOf({SIGTERM, SIGINT, SIGUSR1});
        int signal = 0;
        while (sigwait(&set, &signal) != 0) {
        }
        if (signal == SIGUSR1) return;
        LogWarning(SignalName(signal), " while ", what, ": ends at once");
        _exit(128 + signal);
      }) {}

EndAtOnce::~EndAtOnce() {
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
}

}  // namespace ballast
