#include "common/clock.h"

#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/threads.h"

namespace ballast {

namespace {

absl::Time SteadyNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

class RealSleeper final : public Sleeper {
 public:
  bool Sleep(absl::Duration duration) override {
    const absl::Time end = SteadyNow() + duration;
    MutexLock lock(&mutex_);
    while (!woken_) {
      const absl::Duration left = end - SteadyNow();
      if (left <= absl::ZeroDuration()) return true;
      changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(left));
    }
    return false;
  }

  void Wake() override {
    MutexLock lock(&mutex_);
    woken_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
};

class RealClock final : public Clock {
 public:
  absl::Time Now() override { return SteadyNow(); }
  std::unique_ptr<Sleeper> NewSleeper() override {
    return std::make_unique<RealSleeper>();
  }
};

}  // namespace

Clock* Clock::Real() {
  static RealClock* const clock = new RealClock;
  return clock;
}

absl::StatusOr<std::unique_ptr<Ticker>> Ticker::Start(
    absl::string_view purpose, Period period, std::function<void()> tick,
    Clock* clock) {
  std::unique_ptr<Ticker> ticker(
      new Ticker(std::move(period), std::move(tick), clock));
  BALLAST_ASSIGN_OR_RETURN(ticker->thread_,
                           StartThread(purpose, [t = ticker.get()] {
                             while (t->sleeper_->Sleep(t->period_()))
                               t->tick_();
                           }));
  return ticker;
}

Ticker::Ticker(Period period, std::function<void()> tick, Clock* clock)
    : period_(std::move(period)),
      tick_(std::move(tick)),
      sleeper_(clock->NewSleeper()) {}

Ticker::~Ticker() {
  sleeper_->Wake();
  if (thread_.joinable()) thread_.join();
}

}  // namespace ballast
