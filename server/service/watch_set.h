#ifndef BALLAST_SERVER_SERVICE_WATCH_SET_H_
#define BALLAST_SERVER_SERVICE_WATCH_SET_H_

#include <cstddef>
#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"

namespace ballast {

// The open calls of one kind of watch. Owns them until Forget.
// Thread-safe.
template <typename Call>
class WatchSet {
 public:
  using Calls = std::set<std::shared_ptr<Call>>;

  // Each call may keep a worker busy, so further ones are refused.
  static constexpr size_t kMaxOpen = 64;

  // Adds the call in any case. If not OK, the call must end with the returned
  // status: UNAVAILABLE after Drain, RESOURCE_EXHAUSTED beyond kMaxOpen. `what`
  // names what is watched.
  absl::Status Add(const std::shared_ptr<Call>& call, absl::string_view what) {
    MutexLock lock(&mutex_);
    const size_t open = open_.size();
    open_.insert(call);
    if (draining_) return Draining();
    if (open < kMaxOpen) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("this server already has ", kMaxOpen, " watchers of the ",
                     what, ", the most it allows; try another server"));
  }

  // Ends all calls, present and future, with UNAVAILABLE.
  void Drain() {
    {
      MutexLock lock(&mutex_);
      draining_ = true;
    }
    for (const auto& call : open()) call->End(Draining());
  }

  void Forget(const std::shared_ptr<Call>& call) {
    MutexLock lock(&mutex_);
    open_.erase(call);
  }

  Calls open() const {
    MutexLock lock(&mutex_);
    return open_;
  }

 private:
  static absl::Status Draining() {
    return absl::UnavailableError("the server is draining; ask another");
  }

  mutable Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  Calls open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_WATCH_SET_H_
