#include "client/pull_channel.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <utility>

#include "client/server_channel.h"
#include "proto/transport.h"

namespace ballast {

PullChannels::PullChannels(const std::string& address,
                           const ChannelSecurity& security, uint32_t count)
    : address_(address),
      security_(security),
      count_(std::clamp(count, 1u, kMaxLanes)),
      main_(MakePullChannel(address, security)) {}

std::vector<std::shared_ptr<grpc::Channel>> PullChannels::LanesTo(
    const std::string& peer) {
  MutexLock lock(&mutex_);
  if (peer != peer_ || lanes_.empty()) {
    peer_ = peer;
    lanes_.clear();
    for (uint32_t i = 1; i < count_; ++i) {
      lanes_.push_back(MakePullChannel(address_, security_, peer));
    }
  }
  return lanes_;
}

namespace {

class GrpcPullRpc final : public PullRpc {
 public:
  GrpcPullRpc(const std::shared_ptr<grpc::Channel>& channel,
              PullClientReactor* reactor) {
    grpc::GenericStub(channel).PrepareBidiStreamingCall(
        &context_, "/ballast.v1.LoaderService/Pull", {}, reactor);
  }
  void Cancel() override { context_.TryCancel(); }
  std::string peer() const override { return context_.peer(); }

 private:
  grpc::ClientContext context_;
};

// The connection of a further lane.
class GrpcLaneChannel final : public PullChannel {
 public:
  explicit GrpcLaneChannel(std::shared_ptr<grpc::Channel> channel)
      : channel_(std::move(channel)) {}
  std::unique_ptr<PullRpc> Prepare(PullClientReactor* reactor) override {
    return std::make_unique<GrpcPullRpc>(channel_, reactor);
  }
  uint32_t lanes() const override { return 1; }
  std::vector<std::shared_ptr<PullChannel>> LanesTo(
      const std::string&) override {
    return {};
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
};

class GrpcPullChannel final : public PullChannel {
 public:
  explicit GrpcPullChannel(std::shared_ptr<PullChannels> channels)
      : channels_(std::move(channels)) {}
  std::unique_ptr<PullRpc> Prepare(PullClientReactor* reactor) override {
    return std::make_unique<GrpcPullRpc>(channels_->main(), reactor);
  }
  uint32_t lanes() const override { return channels_->count(); }
  std::vector<std::shared_ptr<PullChannel>> LanesTo(
      const std::string& peer) override {
    std::vector<std::shared_ptr<PullChannel>> lanes;
    for (auto& channel : channels_->LanesTo(peer)) {
      lanes.push_back(std::make_shared<GrpcLaneChannel>(std::move(channel)));
    }
    return lanes;
  }

 private:
  const std::shared_ptr<PullChannels> channels_;
};

}  // namespace

std::shared_ptr<PullChannel> MakeGrpcPullChannel(
    std::shared_ptr<PullChannels> channels) {
  return std::make_shared<GrpcPullChannel>(std::move(channels));
}

}  // namespace ballast
