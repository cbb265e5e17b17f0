#include "server/pull/pull_call.h"

#include <utility>

#include "absl/status/status.h"
#include "common/grpc_status.h"
#include "server/pull/lane_side.h"
#include "server/pull/pull_response_wire.h"
#include "server/pull/pull_side.h"

namespace ballast {
namespace {

class RefusedPull final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit RefusedPull(const absl::Status& why) { Finish(ToGrpcStatus(why)); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* PullCall::Start(
    PullContext* context, const std::string& peer) {
  const std::string client = ClientOf(peer);
  const absl::Status admitted = context->limits.Begin(client);
  if (!admitted.ok()) return new RefusedPull(admitted);
  context->calls->Begin();
  auto* call = new PullCall(context, client, peer);
  call->Read(&call->request_);
  return call;
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

void PullCall::OnDone() {
  const auto side = this->side();
  const bool counted = side == nullptr || side->OnDone();
  context_.limits.End(client_);
  if (counted) context_.calls->End();
  delete this;
}

}  // namespace ballast
