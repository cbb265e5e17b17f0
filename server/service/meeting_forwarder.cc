#include "server/service/meeting_forwarder.h"

#include <utility>

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "server/service/peer_caller.h"

namespace ballast {

// One forwarded call. Deletes itself when gRPC is done with it.
class MeetingForwarder::Call final : public grpc::ServerUnaryReactor {
 public:
  Call(MeetingForwarder* forwarder, grpc::CallbackServerContext* context,
       const v1::RendezvousRequest& request)
      : forwarder_(forwarder),
        // Adopts the caller's deadline.
        context_(grpc::ClientContext::FromCallbackServerContext(*context)),
        request_(request) {
    request_.set_passed_on(forwarder_->fingerprint_);
    forwarder_->calls_->Begin();
  }

  void Start(v1::RendezvousResponse* response) {
    forwarder_->stub_->async()->Rendezvous(
        context_.get(), &request_, response, [this](grpc::Status status) {
          Finish(ToGrpcStatus(forwarder_->Annotated(status)));
        });
  }
  void Cancel() { context_->TryCancel(); }

  void OnCancel() override { Cancel(); }
  void OnDone() override {
    forwarder_->Forget(this);
    forwarder_->calls_->End();
    delete this;
  }

 private:
  MeetingForwarder* const forwarder_;
  const std::unique_ptr<grpc::ClientContext> context_;
  v1::RendezvousRequest request_;
};

MeetingForwarder::MeetingForwarder(std::string address,
                                   const ChannelSecurity& security,
                                   std::string fingerprint, CallCount* calls)
    : address_(std::move(address)),
      fingerprint_(std::move(fingerprint)),
      calls_(calls) {
  const auto channel = MakePeerChannel(address_, security);
  cannot_connect_ = channel.status();
  if (channel.ok()) stub_ = v1::LoaderService::NewStub(*channel);
}

MeetingForwarder::~MeetingForwarder() = default;

grpc::ServerUnaryReactor* MeetingForwarder::Open(
    grpc::CallbackServerContext* context, const v1::RendezvousRequest& request,
    v1::RendezvousResponse* response) {
  auto* call = new Call(this, context, request);
  bool draining = false;
  {
    MutexLock lock(&mutex_);
    draining = draining_;
    open_.insert(call);
  }
  if (draining || stub_ == nullptr) {
    call->Finish(ToGrpcStatus(
        draining ? absl::UnavailableError(
                       "the server is draining; meet through another server "
                       "of the job")
                 : Annotate(cannot_connect_,
                            absl::StrCat("the job's groups meet at server ",
                                         address_))));
    return call;
  }
  call->Start(response);
  return call;
}

void MeetingForwarder::Drain() {
  MutexLock lock(&mutex_);
  draining_ = true;
  // No call is deleted while the lock is held, because Forget takes it.
  for (Call* call : open_) call->Cancel();
}

void MeetingForwarder::Forget(Call* call) {
  MutexLock lock(&mutex_);
  open_.erase(call);
}

absl::Status MeetingForwarder::Annotated(const grpc::Status& status) const {
  absl::Status result = FromGrpcStatus(status);
  // Cancelled by Drain, or by a server that shuts down: worth another try. A
  // client that has left does not see the status.
  if (absl::IsCancelled(result)) {
    result = absl::UnavailableError("the meeting was broken off");
  }
  return Annotate(result,
                  absl::StrCat("the job's groups meet at server ", address_));
}

}  // namespace ballast
