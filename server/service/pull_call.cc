#include "server/service/pull_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "server/service/pull_wire.h"

namespace ballast {

namespace {

class RefusedPull final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit RefusedPull(const absl::Status& why) { Finish(ToGrpcStatus(why)); }
  void OnDone() override { delete this; }
};

}  // namespace

// gRPC never runs a reaction inside the call that starts its operation, so
// operations are started under mutex_.

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* PullCall::Start(
    Loader* loader, const v1::Fingerprint& fingerprint, const Refusal* refusal,
    CallCount* calls, PullMeter meter) {
  if (!calls->TryBegin(kMaxCalls)) {
    return new RefusedPull(absl::ResourceExhaustedError(absl::StrCat(
        kMaxCalls, " calls are open, which is the most; try another server")));
  }
  std::shared_ptr<PullCall> call(
      new PullCall(loader, fingerprint, refusal, calls, std::move(meter)));
  call->self_ = call;
  call->StartRead(&call->request_);
  return call.get();
}

void PullCall::OnReadDone(bool ok) {
  MutexLock lock(&mutex_);
  if (finished_ || end_.has_value()) return;
  if (ok) {
    const absl::Status status = OnRequest();
    if (!status.ok()) {
      End(status);
      return;
    }
    StartRead(&request_);
  } else {
    client_has_finished_ = true;
  }
  Advance();
}

absl::Status PullCall::OnRequest() {
  BALLAST_ASSIGN_OR_RETURN(const v1::PullRequest request,
                           DecodeRequest(std::exchange(request_, {})));
  BALLAST_RETURN_IF_ERROR(session_.OnRequest(request));
  if (stream_ != nullptr || session_.end().has_value()) {
    return absl::OkStatus();
  }
  const v1::PullRequest::Open& open = *session_.open();
  BALLAST_ASSIGN_OR_RETURN(
      stream_, loader_->OpenStream(open.role(), open.step(), open.micro_batch(),
                                   open.steps(),
                                   [weak = std::weak_ptr<PullCall>(self_)] {
                                     const auto call = weak.lock();
                                     if (call == nullptr) return;
                                     MutexLock lock(&call->mutex_);
                                     call->Advance();
                                   }));
  meter_.Opened(open);
  return absl::OkStatus();
}

void PullCall::OnWriteDone(bool ok) {
  MutexLock lock(&mutex_);
  writing_ = false;
  response_.Clear();  // and with it the block that was sent
  meter_.Wrote(!session_.MidBlock());
  if (!ok && !end_.has_value()) end_ = absl::CancelledError("the client left");
  Advance();
}

void PullCall::OnCancel() {
  MutexLock lock(&mutex_);
  if (!end_.has_value()) End(absl::CancelledError("the client left"));
}

void PullCall::OnDone() {
  // Usually the last owner: whoever runs `ready` may be another.
  const std::shared_ptr<PullCall> self = std::move(self_);
  {
    MutexLock lock(&mutex_);
    if (lingers_) return;
  }
  calls_->End();
}

void PullCall::Advance() {
  while (!writing_ && !finished_) {
    const absl::Status refused = refusal_->status();
    if (!refused.ok() && !end_.has_value()) end_ = refused;
    if (end_.has_value()) {
      End(*end_);
      return;
    }
    if (auto message = session_.NextMessage()) {
      meter_.Sends(message->message, session_.held());
      response_ = EncodeResponse(*std::move(message));
      writing_ = true;
      StartWrite(&response_);
      return;
    }
    if (session_.end().has_value()) {
      if (session_.lent() == 0 || client_has_finished_) {
        End(*session_.end());
      } else {
        Linger();
      }
      return;
    }
    if (stream_ == nullptr) {
      if (client_has_finished_) {
        End(absl::InvalidArgumentError("the client ended before its Open"));
      }
      return;
    }
    if (session_.WaitsForClient()) {
      meter_.HoldsBack(session_.held());
      // Look whether the stream has ended meanwhile.
      const absl::Status status = stream_->status();
      if (!status.ok()) {
        End(status);
      } else if (client_has_finished_) {
        End(absl::InvalidArgumentError(
            "the client ended its side, and its credit does not cover the "
            "next block, or it has not said whether it mapped the arena"));
      }
      return;
    }
    auto next = stream_->TryNext();
    if (!next.has_value()) {
      meter_.WaitsForBlock(session_.held());
      return;
    }
    if (!next->ok()) {
      // All that was asked for has been sent: the good end.
      const absl::Status status = absl::IsOutOfRange(next->status())
                                      ? absl::OkStatus()
                                      : next->status();
      // A server that drains writes to no block any more.
      if (absl::IsUnavailable(status)) {
        End(status);
        return;
      }
      session_.OnEnd(status);
      continue;
    }
    meter_.GotBlock((**next)->id());
    session_.OnBlock(**std::move(next));
  }
}

void PullCall::Linger() {
  stream_.reset();
  meter_.Ended();
  if (std::exchange(lingers_, true)) return;
  calls_->End();
}

void PullCall::End(absl::Status status) {
  end_ = std::move(status);
  stream_.reset();
  meter_.Ended();
  if (writing_ || finished_) return;
  finished_ = true;
  Finish(ToGrpcStatus(*end_));
}

}  // namespace ballast
