#include "server/serve/pull/pull_call.h"

#include <grpcpp/server_context.h>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/grpc_status.h"
#include "server/serve/pull/pull_session.h"
#include "server/serve/relay/relayed_peer.h"

namespace ballast {
namespace {

// A lane: a call that carries chunks of another call, its Pull. The Pull writes
// to the lane and ends it. The lane notifies the Pull when a write is done and
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

class RefusedPull final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit RefusedPull(const absl::Status& why) { Finish(ToGrpcStatus(why)); }
  void OnDone() override { delete this; }
};

}  // namespace

PullCall::PullCall(PullContext* context, grpc::CallbackServerContext* rpc)
    : context_(*context),
      peer_(RelayedPeerName(rpc->peer())),
      client_(GetClient(peer_)) {
  MutexLock lock(&rpc_->mutex);
  rpc_->context = rpc;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* PullCall::Start(
    PullContext* context, grpc::CallbackServerContext* rpc) {
  std::unique_ptr<PullCall> call(new PullCall(context, rpc));
  const absl::StatusOr<uint64_t> number = context->limits.Begin(
      call->client_,
      [c = call.get()](const absl::Status& why) { c->End(why); });
  if (!number.ok()) return new RefusedPull(number.status());
  call->number_ = *number;
  context->calls->Begin();
  call->Read(&call->request_);
  return call.release();
}

void PullCall::OnReadDone(bool ok) {
  if (ok) {
    Dispatch(DecodeRequest(std::exchange(request_, {})));
    Read(&request_);
    return;
  }
  if (const auto side = this->side()) {
    side->OnClientFinished();
  } else {
    End(absl::InvalidArgumentError("the client ended before its Open"));
  }
}

void PullCall::Dispatch(const absl::StatusOr<v1::PullRequest>& request) {
  if (const auto side = this->side()) {
    side->OnRequest(request);
    return;
  }
  if (!request.ok()) {
    End(request.status());
    return;
  }
  std::shared_ptr<CallSide> side;
  if (request->has_join()) {
    side = std::make_shared<LaneSide>(&context_.lanes, this);
  } else {
    side = std::make_shared<PullSide>(&context_, this, client_, peer_);
  }
  context_.limits.Spoke(number_);
  {
    // Set before the side writes, since OnWritten reads it.
    MutexLock lock(&side_mutex_);
    side_ = side;
  }
  side->OnRequest(request);
}

std::shared_ptr<CallSide> PullCall::side() const {
  MutexLock lock(&side_mutex_);
  return side_;
}

void PullCall::OnWritten() { side()->OnWritten(); }

void PullCall::OnEndDuringWrite() {
  if (context_.limits.last_write() == absl::InfiniteDuration()) return;
  alarm_.emplace().Set(
      absl::ToChronoTime(absl::Now() + context_.limits.last_write()),
      [rpc = rpc_](bool is_due) {
        if (!is_due) return;
        MutexLock lock(&rpc->mutex);
        if (rpc->context != nullptr) rpc->context->TryCancel();
      });
}

void PullCall::OnDone() {
  {
    MutexLock lock(&rpc_->mutex);
    rpc_->context = nullptr;
  }
  const auto side = this->side();
  const bool counted = side == nullptr || side->OnDone();
  context_.limits.End(client_, number_);
  if (counted) context_.calls->End();
  delete this;
}

}  // namespace ballast
