#include "server/pull/pull_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "server/pull/pull_response_wire.h"

namespace ballast {

namespace {

class RefusedPull final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit RefusedPull(const absl::Status& why) { Finish(ToGrpcStatus(why)); }
  void OnDone() override { delete this; }
};

// "vision rank 3"
std::string Describe(const v1::PullRequest::Open& open) {
  return absl::StrCat(ModuleName(open.role().module()), " rank ",
                      open.role().dp_rank());
}

}  // namespace

// gRPC never runs a reaction inside the call that starts its operation, so
// operations are started under mutex_. A Pull's mutex_ may be held while one of
// a lane is taken, never the other way round.

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* PullCall::Start(
    PullContext* context, const std::string& peer) {
  const std::string client = ClientOf(peer);
  const absl::Status admitted = context->limits.Begin(client);
  if (!admitted.ok()) return new RefusedPull(admitted);
  context->calls->Begin();
  std::shared_ptr<PullCall> call(new PullCall(context, client, peer));
  call->self_ = call;
  call->StartRead(&call->request_);
  return call.get();
}

void PullCall::OnReadDone(bool ok) {
  absl::StatusOr<v1::PullRequest> request = v1::PullRequest();
  bool joins = false;
  if (ok) {
    request = DecodeRequest(std::exchange(request_, {}));
    joins = request.ok() && request->has_join();
  }
  if (joins) {
    const absl::Status joined = Join(request->join());
    MutexLock lock(&mutex_);
    if (finished_ || end_.has_value()) return;
    if (joined.ok()) {
      StartRead(&request_);
    } else {
      End(joined);
    }
    return;
  }
  MutexLock lock(&mutex_);
  if (finished_ || end_.has_value()) return;
  if (ok) {
    const absl::Status status =
        request.ok() ? OnRequest(*request) : request.status();
    if (!status.ok()) {
      End(status);
      return;
    }
    StartRead(&request_);
  } else {
    client_has_finished_ = true;
  }
  if (main_ == nullptr) Advance();
}

absl::Status PullCall::OnRequest(const v1::PullRequest& request) {
  if (main_ != nullptr) {
    return absl::InvalidArgumentError(
        "a PullRequest came after PullRequest.join");
  }
  BALLAST_RETURN_IF_ERROR(session_.OnRequest(request));
  if (session_.end().has_value() && pending_.has_value() &&
      pending_->block != nullptr) {
    pending_.reset();  // The client wants it no more.
  }
  if (stream_ != nullptr || session_.end().has_value()) {
    return absl::OkStatus();
  }
  const v1::PullRequest::Open& open = *session_.open();
  if (session_.lanes() > 1) {
    if (!context_.lanes.Add(open.ticket(), self_)) {
      return absl::InvalidArgumentError(
          "PullRequest.open.ticket is another Pull's");
    }
    lanes_.resize(session_.lanes() - 1);
  }
  BALLAST_ASSIGN_OR_RETURN(
      stream_, context_.loader->OpenStream(
                   open.role(), open.step(), open.micro_batch(), open.steps(),
                   [weak = std::weak_ptr<PullCall>(self_)] {
                     const auto call = weak.lock();
                     if (call == nullptr) return;
                     MutexLock lock(&call->mutex_);
                     call->Advance();
                   }));
  meter_.Opened(open);
  LogDebug(Describe(open), " of ", client_, " pulls from step ", open.step(),
           " micro-batch ", open.micro_batch());
  return absl::OkStatus();
}

void PullCall::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    response_.Clear();  // and with it the block that was sent
    if (!ok && !end_.has_value()) {
      end_ = absl::CancelledError("the client left");
    }
    if (main_ == nullptr) {
      meter_.Wrote(AllIsWritten());
      Advance();
      return;
    }
    if (end_.has_value()) End(*end_);
  }
  main_->OnLaneFree(lane_);
}

void PullCall::OnCancel() {
  MutexLock lock(&mutex_);
  if (!end_.has_value()) End(absl::CancelledError("the client left"));
}

void PullCall::OnDone() {
  // Usually the last owner: whoever runs `ready` may be another.
  const std::shared_ptr<PullCall> self = std::move(self_);
  context_.limits.End(client_);
  bool lingered = false;
  {
    MutexLock lock(&mutex_);
    EndLanes(absl::CancelledError("the client left"));
    lingered = lingers_;
    if (!lanes_.empty()) context_.lanes.Remove(session_.open()->ticket());
  }
  if (main_ != nullptr) main_->OnLaneGone(lane_);
  if (!lingered) context_.calls->End();
}

void PullCall::Advance() {
  // With lanes the next message may go elsewhere than what is being written.
  while (!finished_ && (!writing_ || session_.lanes() > 1)) {
    const absl::Status refused = context_.refusal->status();
    if (!refused.ok() && !end_.has_value()) end_ = refused;
    if (end_.has_value()) {
      End(*end_);
      return;
    }
    if (!pending_.has_value()) {
      pending_ = session_.NextMessage();
      if (pending_.has_value()) {
        meter_.Sends(pending_->message, session_.held());
      }
    }
    if (pending_.has_value()) {
      if (!SendPending()) return;
      continue;
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

bool PullCall::SendPending() {
  if (pending_->lane == 0) {
    if (writing_) return false;
    response_ = EncodeResponse(*std::exchange(pending_, {}));
    writing_ = true;
    StartWrite(&response_);
    return true;
  }
  Lane& lane = lanes_[pending_->lane - 1];
  if (lane.call == nullptr || lane.busy) return false;
  lane.busy = true;
  lane.call->SendChunk(EncodeResponse(*std::exchange(pending_, {})));
  return true;
}

bool PullCall::AllIsWritten() const {
  if (session_.MidBlock() || pending_.has_value() || writing_) return false;
  return std::none_of(lanes_.begin(), lanes_.end(),
                      [](const Lane& lane) { return lane.busy; });
}

void PullCall::Linger() {
  stream_.reset();
  meter_.Ended();
  EndLanes(*session_.end());
  if (std::exchange(lingers_, true)) return;
  context_.calls->End();
}

void PullCall::End(absl::Status status) {
  end_ = std::move(status);
  stream_.reset();
  meter_.Ended();
  pending_.reset();
  EndLanes(*end_);
  if (writing_ || finished_) return;
  finished_ = true;
  if (session_.open() != nullptr && main_ == nullptr) {
    LogDebug("the pull of ", Describe(*session_.open()), " of ", client_,
             " ends: ", end_->ok() ? "all is sent" : end_->ToString());
  }
  Finish(ToGrpcStatus(*end_));
}

void PullCall::EndLanes(const absl::Status& status) {
  for (Lane& lane : lanes_) {
    if (lane.call != nullptr)
      std::exchange(lane.call, nullptr)->EndLane(status);
  }
}

absl::Status PullCall::Join(const v1::PullRequest::Join& join) {
  const std::shared_ptr<PullCall> main = context_.lanes.Find(join.ticket());
  {
    MutexLock lock(&mutex_);
    if (main_ != nullptr || session_.open() != nullptr) {
      return absl::InvalidArgumentError(
          "PullRequest.join came after another message");
    }
    if (main == nullptr) {
      return absl::NotFoundError(
          "PullRequest.join.ticket is no Pull's of this server; does something "
          "between client and server spread connections over several servers?");
    }
    main_ = main;
    lane_ = join.lane();
  }
  const absl::Status added = main->AddLane(join.lane(), self_);
  // Then its end is none of that Pull's concern.
  if (!added.ok()) main_ = nullptr;
  return added;
}

absl::Status PullCall::AddLane(uint32_t lane, std::shared_ptr<PullCall> call) {
  MutexLock lock(&mutex_);
  if (end_.has_value() || finished_ || lingers_) {
    return absl::UnavailableError("the Pull of this lane has ended");
  }
  if (lane == 0 || lane > lanes_.size() || lanes_[lane - 1].call != nullptr) {
    return absl::NotFoundError(absl::StrCat("PullRequest.join.lane is ", lane,
                                            ", wanted 1 to ", lanes_.size(),
                                            ", each once"));
  }
  lanes_[lane - 1].call = std::move(call);
  Advance();
  return absl::OkStatus();
}

void PullCall::OnLaneFree(uint32_t lane) {
  MutexLock lock(&mutex_);
  lanes_[lane - 1].busy = false;
  meter_.Wrote(AllIsWritten());
  if (!end_.has_value()) Advance();
}

void PullCall::OnLaneGone(uint32_t lane) {
  MutexLock lock(&mutex_);
  // Also where it was none of this call's, or the second of a number.
  if (finished_ || end_.has_value() || lingers_ || lane == 0 ||
      lane > lanes_.size()) {
    return;
  }
  End(absl::CancelledError(absl::StrCat("the client left lane ", lane)));
}

void PullCall::SendChunk(grpc::ByteBuffer chunk) {
  MutexLock lock(&mutex_);
  // Where it has ended OnLaneGone says so.
  if (finished_ || end_.has_value()) return;
  response_ = std::move(chunk);
  writing_ = true;
  StartWrite(&response_);
}

void PullCall::EndLane(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (!end_.has_value()) End(status);
}

}  // namespace ballast
