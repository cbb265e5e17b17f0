#include "server/service/peer_caller.h"

#include <chrono>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "common/grpc_status.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "proto/loader_service.grpc.pb.h"
#include "server/service/peer_channel.h"

namespace ballast {
namespace {

constexpr std::chrono::seconds kDeadline(2);

class GrpcPeerCaller final : public PeerCaller {
 public:
  explicit GrpcPeerCaller(ChannelSecurity security)
      : security_(std::move(security)) {}

  absl::StatusOr<v1::AttachResponse> Attach(
      const std::string& address) override {
    BALLAST_ASSIGN_OR_RETURN(const auto channel,
                             MakePeerChannel(address, security_));
    const auto stub = v1::LoaderService::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    {
      MutexLock lock(&mutex_);
      if (cancelled_) return absl::CancelledError("the server stops");
      context_ = &context;
    }
    v1::AttachResponse response;
    const grpc::Status status =
        stub->Attach(&context, v1::AttachRequest(), &response);
    MutexLock lock(&mutex_);
    context_ = nullptr;
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }

  void Cancel() override {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }

 private:
  const ChannelSecurity security_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  // Context of the Attach in progress; null if there is none.
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace

std::unique_ptr<PeerCaller> MakeGrpcPeerCaller(ChannelSecurity security) {
  return std::make_unique<GrpcPeerCaller>(std::move(security));
}

}  // namespace ballast
