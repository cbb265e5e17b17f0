#ifndef BALLAST_SERVER_PULL_PULL_CONTEXT_H_
#define BALLAST_SERVER_PULL_PULL_CONTEXT_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "proto/schedule.pb.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/loader.h"
#include "server/monitor/client_board.h"
#include "server/pull/pull_limits.h"

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

// State shared by all Pulls of a server. Pointers are not owned; their targets
// must outlive the gRPC server, and so must this.
struct PullContext {
  Loader* loader = nullptr;
  v1::Fingerprint fingerprint;
  const Refusal* refusal = nullptr;        // ends Pulls with its reason
  CallCount* calls = nullptr;              // the calls a drain waits for
  PullInstruments* instruments = nullptr;  // may be null
  ClientBoard* clients = nullptr;          // may be null
  PullLimits limits;
  LaneDirectory lanes;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_PULL_CONTEXT_H_
