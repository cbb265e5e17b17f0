#include "client/pull_channel.h"

#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

namespace ballast {
namespace {

class GrpcPullRpc final : public PullRpc {
 public:
  GrpcPullRpc(const std::shared_ptr<grpc::Channel>& channel,
              PullClientReactor* reactor) {
    grpc::GenericStub(channel).PrepareBidiStreamingCall(
        &context_, "/ballast.v1.LoaderService/Pull", {}, reactor);
  }
  void Cancel() override { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
};

class GrpcPullChannel final : public PullChannel {
 public:
  explicit GrpcPullChannel(std::shared_ptr<grpc::Channel> channel)
      : channel_(std::move(channel)) {}
  std::unique_ptr<PullRpc> Prepare(PullClientReactor* reactor) override {
    return std::make_unique<GrpcPullRpc>(channel_, reactor);
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace

std::shared_ptr<PullChannel> MakeGrpcPullChannel(
    std::shared_ptr<grpc::Channel> channel) {
  return std::make_shared<GrpcPullChannel>(std::move(channel));
}

}  // namespace ballast
