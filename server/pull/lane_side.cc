#include "server/pull/lane_side.h"

#include <utility>

#include "server/pull/pull_side.h"

namespace ballast {

void LaneSide::OnRequest(const absl::StatusOr<v1::PullRequest>& request) {
  absl::Status status = request.status();
  if (status.ok()) {
    status = joined().pull == nullptr
                 ? Join(request->join())
                 : absl::InvalidArgumentError(
                       "a PullRequest came after PullRequest.join");
  }
  if (!status.ok()) call_->End(std::move(status));
}

absl::Status LaneSide::Join(const v1::PullRequest::Join& join) {
  const std::shared_ptr<PullSide> pull = directory_->Find(join.ticket());
  if (pull == nullptr) {
    return absl::NotFoundError(
        "PullRequest.join.ticket is no Pull's of this server; does something "
        "between client and server spread connections over several servers?");
  }
  {
    // Set before the Pull writes, since OnWritten reads it.
    MutexLock lock(&mutex_);
    joined_ = {pull, join.lane()};
  }
  return pull->AddLane(join.lane(), call_);
}

LaneSide::Joined LaneSide::joined() const {
  MutexLock lock(&mutex_);
  return joined_;
}

void LaneSide::OnWritten() {
  const Joined at = joined();
  at.pull->OnLaneWritten(at.lane);
}

bool LaneSide::OnDone() {
  const Joined at = joined();
  if (at.pull != nullptr) at.pull->OnLaneGone(at.lane, call_);
  return true;
}

}  // namespace ballast
