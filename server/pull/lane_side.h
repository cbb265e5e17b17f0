#ifndef BALLAST_SERVER_PULL_LANE_SIDE_H_
#define BALLAST_SERVER_PULL_LANE_SIDE_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "server/pull/call_side.h"
#include "server/pull/lane_directory.h"

namespace ballast {

// A lane: a call that carries chunks of another call, its Pull. The Pull writes
// to the lane and ends it. The lane tells the Pull when a write is over and
// when the lane is gone. Thread-safe.
class LaneSide final : public CallSide {
 public:
  // Neither is owned. `call` is used until OnDone.
  LaneSide(LaneDirectory* directory, PullReactor* call)
      : directory_(directory), call_(call) {}

  // The first message is a Join; any other ends the call with INVALID_ARGUMENT.
  // The call ends with NOT_FOUND if no Pull has the ticket, or that Pull has no
  // such lane to be joined, and with UNAVAILABLE if the Pull has ended.
  void OnRequest(const absl::StatusOr<v1::PullRequest>& request) override;
  void OnClientFinished() override {}
  void OnWritten() override;
  bool OnDone() override;

 private:
  struct Joined {
    std::shared_ptr<PullSide> pull;  // null before the Join
    uint32_t lane = 0;
  };

  absl::Status Join(const v1::PullRequest::Join& join);
  Joined joined() const;

  LaneDirectory* const directory_;
  PullReactor* const call_;
  mutable Mutex mutex_;
  Joined joined_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_LANE_SIDE_H_
