#include "tests/fakes/manual_clock.h"

#include <iterator>
#include <utility>

namespace ballast {

class ManualClock::ManualSleeper final : public Sleeper {
 public:
  explicit ManualSleeper(std::shared_ptr<State> state)
      : state_(std::move(state)) {}

  bool Sleep(absl::Duration duration) override {
    MutexLock lock(&state_->mutex);
    state_->sleeps.push_back(duration);
    if (woken_) return false;
    if (duration <= absl::ZeroDuration()) return true;
    state_->due[this] = state_->now + duration;
    state_->changed.NotifyAll();
    while (state_->due.count(this) > 0) state_->changed.Wait(&state_->mutex);
    return !woken_;
  }

  void Wake() override {
    MutexLock lock(&state_->mutex);
    woken_ = true;
    state_->due.erase(this);
    state_->changed.NotifyAll();
  }

 private:
  const std::shared_ptr<State> state_;
  bool woken_ ABSL_GUARDED_BY(state_->mutex) = false;
};

absl::Time ManualClock::Now() {
  MutexLock lock(&state_->mutex);
  return state_->now;
}

std::unique_ptr<Sleeper> ManualClock::NewSleeper() {
  return std::make_unique<ManualSleeper>(state_);
}

void ManualClock::Advance(absl::Duration duration) {
  State& state = *state_;
  MutexLock lock(&state.mutex);
  state.now += duration;
  for (auto it = state.due.begin(); it != state.due.end();) {
    it = it->second <= state.now ? state.due.erase(it) : std::next(it);
  }
  state.changed.NotifyAll();
}

void ManualClock::AwaitSleepers(int n) {
  State& state = *state_;
  MutexLock lock(&state.mutex);
  while (static_cast<int>(state.due.size()) < n) {
    state.changed.Wait(&state.mutex);
  }
}

std::vector<absl::Duration> ManualClock::sleeps() const {
  MutexLock lock(&state_->mutex);
  return state_->sleeps;
}

}  // namespace ballast
