#ifndef BALLAST_SERVER_SERVE_RELAY_WORK_BUDGETS_H_
#define BALLAST_SERVER_SERVE_RELAY_WORK_BUDGETS_H_

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/mutex.h"

namespace ballast {

// The work that each peer may give a server, at a steady rate and a burst
// above it. A peer that has spent more has to wait. Thread-safe.
class WorkBudgets {
 public:
  // `rate`: seconds of work a second. `burst`: what a peer may spend at once.
  WorkBudgets(double rate, absl::Duration burst) : rate_(rate), burst_(burst) {}

  // Spends `work` of the peer's, and returns how long the peer has to wait
  // before anything else is taken from it; zero: not at all.
  absl::Duration Spend(const std::string& peer, absl::Duration work,
                       absl::Time now) {
    MutexLock lock(&mutex_);
    if (spent_.size() >= forget_at_) Forget(now);
    // The time at which all that was spent is paid for.
    absl::Time& paid = spent_[peer];
    paid = std::max(paid, now) + work / rate_;
    return std::max(paid - now - burst_ / rate_, absl::ZeroDuration());
  }

 private:
  static constexpr size_t kManyPeers = 1024;

  // Forgets peers that have spent next to nothing of late.
  void Forget(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Time settled = now + burst_ / rate_ / 100;
    std::erase_if(spent_, [settled](const auto& peer) {
      return peer.second <= settled;
    });
    forget_at_ = std::max(kManyPeers, 2 * spent_.size());
  }

  const double rate_;
  const absl::Duration burst_;
  Mutex mutex_;
  std::map<std::string, absl::Time> spent_ ABSL_GUARDED_BY(mutex_);
  size_t forget_at_ ABSL_GUARDED_BY(mutex_) = kManyPeers;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_RELAY_WORK_BUDGETS_H_
