#ifndef BALLAST_SERVER_PULL_LANE_DIRECTORY_H_
#define BALLAST_SERVER_PULL_LANE_DIRECTORY_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace ballast {

class PullCall;

// The Pulls that lanes may join (PullRequest.Join), by their tickets.
// Thread-safe.
class LaneDirectory {
 public:
  // False where another Pull has this ticket.
  bool Add(const std::string& ticket, std::weak_ptr<PullCall> call) {
    MutexLock lock(&mutex_);
    return calls_.emplace(ticket, std::move(call)).second;
  }
  void Remove(const std::string& ticket) {
    MutexLock lock(&mutex_);
    calls_.erase(ticket);
  }
  // Null where there is none.
  std::shared_ptr<PullCall> Find(const std::string& ticket) const {
    MutexLock lock(&mutex_);
    const auto found = calls_.find(ticket);
    return found == calls_.end() ? nullptr : found->second.lock();
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::weak_ptr<PullCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_LANE_DIRECTORY_H_
