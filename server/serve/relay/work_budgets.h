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

  // Gives back work that was spent and not done.
  void GiveBack(const std::string& peer, absl::Duration work) {
    MutexLock lock(&mutex_);
    const auto found = spent_.find(peer);
    if (found != spent_.end()) found->second -= work / rate_;
  }

 private:
  static constexpr size_t kManyPeers = 1024;

  // Forgets peers that have spent next to nothing of late.
  void Forget(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Time settled = now + burst_ / rate_ / 100;
    std::erase_if(
        spent_, [settled](const auto& peer) { return peer.second <= settled; });
    forget_at_ = std::max(kManyPeers, 2 * spent_.size());
  }

  const double rate_;
  const absl::Duration burst_;
  Mutex mutex_;
  std::map<std::string, absl::Time> spent_ ABSL_GUARDED_BY(mutex_);
  size_t forget_at_ ABSL_GUARDED_BY(mutex_) = kManyPeers;
};

// The open calls of each peer. Thread-safe.
class OpenCalls {
 public:
  explicit OpenCalls(size_t most) : most_(most) {}

  // Counts `now` in the place of `before` of the peer's calls.
  void Change(const std::string& peer, size_t before, size_t now) {
    if (before == now) return;
    MutexLock lock(&mutex_);
    size_t& calls = calls_[peer];
    calls = calls - before + now;
    if (calls == 0) calls_.erase(peer);
  }

  // Whether the peer may begin another one.
  bool HasRoom(const std::string& peer) const {
    MutexLock lock(&mutex_);
    const auto found = calls_.find(peer);
    return found == calls_.end() || found->second < most_;
  }

 private:
  const size_t most_;
  mutable Mutex mutex_;
  std::map<std::string, size_t> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_RELAY_WORK_BUDGETS_H_
