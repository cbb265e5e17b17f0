#include "server/service/peer_caller.h"

#include <chrono>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "common/grpc_status.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "proto/loader_service.grpc.pb.h"
#include "proto/transport.h"

namespace ballast {
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakePeerChannel(
    const std::string& address, const ChannelSecurity& security,
    int most_bytes) {
  grpc::ChannelArguments arguments;
  // Failed attempts of other channels must not delay this one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Servers are in the cluster, which no HTTP proxy leads to.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetMaxReceiveMessageSize(most_bytes);
  SetSecurityArguments(security, &arguments);
  BALLAST_ASSIGN_OR_RETURN(const auto credentials,
                           ChannelCredentialsFor(security, address));
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

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
