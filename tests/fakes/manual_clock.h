#ifndef BALLAST_TESTS_FAKES_MANUAL_CLOCK_H_
#define BALLAST_TESTS_FAKES_MANUAL_CLOCK_H_

#include <map>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace ballast {

// A clock that moves only when a test moves it. Thread-safe.
//
//   clock.AwaitSleepers(1);            // the code under test sleeps now
//   clock.Advance(absl::Seconds(1));   // and wakes if it asked for no more
class ManualClock final : public Clock {
 public:
  absl::Time Now() override;
  std::unique_ptr<Sleeper> NewSleeper() override;

  void Advance(absl::Duration duration);

  // Waits until at least `n` threads sleep.
  void AwaitSleepers(int n);
  // The duration of each Sleep so far, in the order in which they began.
  std::vector<absl::Duration> sleeps() const;

 private:
  class ManualSleeper;
  // Shared with the sleepers, which may outlive the clock.
  struct State {
    Mutex mutex;
    CondVar changed;
    absl::Time now ABSL_GUARDED_BY(mutex) = absl::UnixEpoch();
    // The due time of each sleeping thread. Advance and Wake remove the ones
    // they wake, so that AwaitSleepers never counts one that is about to leave.
    std::map<const Sleeper*, absl::Time> due ABSL_GUARDED_BY(mutex);
    std::vector<absl::Duration> sleeps ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_MANUAL_CLOCK_H_
