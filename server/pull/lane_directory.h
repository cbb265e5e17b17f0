#ifndef BALLAST_SERVER_PULL_LANE_DIRECTORY_H_
#define BALLAST_SERVER_PULL_LANE_DIRECTORY_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace ballast {

class PullSide;

// The Pulls that lanes may join (PullRequest.Join), by ticket. Thread-safe.
class LaneDirectory {
 public:
  // Returns false if another Pull has this ticket.
  bool Add(const std::string& ticket, std::weak_ptr<PullSide> pull) {
    MutexLock lock(&mutex_);
    return pulls_.emplace(ticket, std::move(pull)).second;
  }
  void Remove(const std::string& ticket) {
    MutexLock lock(&mutex_);
    pulls_.erase(ticket);
  }
  // Null if no Pull has this ticket.
  std::shared_ptr<PullSide> Find(const std::string& ticket) const {
    MutexLock lock(&mutex_);
    const auto found = pulls_.find(ticket);
    return found == pulls_.end() ? nullptr : found->second.lock();
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::weak_ptr<PullSide>> pulls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_LANE_DIRECTORY_H_
