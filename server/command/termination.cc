#include "server/command/termination.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/mutex.h"

namespace ballast {
namespace {

constexpr absl::Duration kSameSignal = absl::Milliseconds(100);
// sigtimedwait and CondVar take no infinite time.
constexpr absl::Duration kLongWait = absl::Hours(1);

sigset_t ServeSet() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

const char* NameOf(SignalRule::Phase phase) {
  switch (phase) {
    case SignalRule::Phase::kStarting:
      return "starting";
    case SignalRule::Phase::kServing:
    case SignalRule::Phase::kDraining:
      return "draining";
    case SignalRule::Phase::kClosing:
      return "closing";
  }
  return "";
}

}  // namespace

SignalRule::Act SignalRule::OnSignal(int signal, absl::Time now) {
  if (signal == SIGHUP) return signal_ == 0 ? Act::kReload : Act::kNone;
  if (phase_ != Phase::kStarting) {
    if (signal_ == 0) {
      signal_ = signal;
      first_ = now;
      return Act::kNone;
    }
    if (now < first_ + kSameSignal) return Act::kNone;
  }
  exit_status_ = 128 + signal;
  reason_ = absl::StrCat(SignalName(signal), " while ", NameOf(phase_),
                         ": ends at once");
  return Act::kEnd;
}

absl::Time SignalRule::deadline() const {
  return first_ + (drains_ ? promised_ : kSameSignal);
}

SignalRule::Act SignalRule::OnTime(absl::Time now) {
  if (now < deadline()) return Act::kNone;
  if (!drains_) {
    drains_ = true;
    return Act::kDrain;
  }
  const std::string late =
      absl::StrCat(absl::FormatDuration(promised_), " after the signal");
  if (phase_ == Phase::kClosing) {
    exit_status_ = 0;
    reason_ = absl::StrCat(
        "closing: ends now, ", late,
        ": all streams have ended, but a thread is still blocked, as by a file "
        "system or a process that hangs");
  } else {
    exit_status_ = 1;
    reason_ = absl::StrCat(
        "draining: ends now, ", late,
        ": a thread is blocked, as by a file system or a process that hangs");
  }
  return Act::kEnd;
}

std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal)
                         : absl::StrCat("SIG", name);
}

struct ServeSignals::State {
  explicit State(absl::Duration promised) : rule(promised) {}

  Mutex mutex;
  CondVar arrived;
  SignalRule rule ABSL_GUARDED_BY(mutex);
  bool reload ABSL_GUARDED_BY(mutex) = false;
  int drain ABSL_GUARDED_BY(mutex) = 0;  // the signal, until it is taken
};

ServeSignals::ServeSignals(absl::Duration promised)
    : state_(new State(promised)) {
  const sigset_t set = ServeSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread(Run, state_).detach();
}

ServeSignals* ServeSignals::Begin(absl::Duration promised) {
  return new ServeSignals(promised);
}

void ServeSignals::Run(State* state) {
  const sigset_t set = ServeSet();
  while (true) {
    absl::Duration wait;
    {
      MutexLock lock(&state->mutex);
      wait = std::clamp(state->rule.deadline() - absl::Now(),
                        absl::ZeroDuration(), kLongWait);
    }
    const timespec limit = absl::ToTimespec(wait);
    const int signal = sigtimedwait(&set, nullptr, &limit);
    std::string reason;
    int exit_status = 0;
    {
      MutexLock lock(&state->mutex);
      SignalRule& rule = state->rule;
      switch (signal > 0 ? rule.OnSignal(signal, absl::Now())
                         : rule.OnTime(absl::Now())) {
        case SignalRule::Act::kNone:
          continue;
        case SignalRule::Act::kReload:
          state->reload = true;
          state->arrived.NotifyAll();
          continue;
        case SignalRule::Act::kDrain:
          state->drain = rule.signal();
          state->arrived.NotifyAll();
          continue;
        case SignalRule::Act::kEnd:
          reason = rule.reason();
          exit_status = rule.exit_status();
      }
    }
    LogWarning(reason);
    _exit(exit_status);
  }
}

void ServeSignals::SetPhase(SignalRule::Phase phase) {
  MutexLock lock(&state_->mutex);
  state_->rule.SetPhase(phase);
}

int ServeSignals::Await(absl::Duration most) {
  const absl::Time end = absl::Now() + most;
  MutexLock lock(&state_->mutex);
  while (state_->drain == 0 && !state_->reload) {
    const absl::Duration left = std::min(end - absl::Now(), kLongWait);
    if (left <= absl::ZeroDuration()) return 0;
    state_->arrived.WaitFor(&state_->mutex, absl::ToChronoNanoseconds(left));
  }
  if (state_->drain != 0) return state_->drain;
  state_->reload = false;
  return SIGHUP;
}

}  // namespace ballast
