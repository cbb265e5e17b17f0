#include "client/ballastctl/order_client.h"

#include "client/server_channel.h"
#include "proto/order_service.grpc.pb.h"

namespace ballast {

struct OrderClient::Connection {
  Connection(const std::string& address, const ChannelSecurity& security)
      : server(address, security),
        stub(v1::OrderService::NewStub(server.channel())) {}

  const ServerChannel server;
  const std::unique_ptr<v1::OrderService::Stub> stub;
};

OrderClient::OrderClient(const std::string& address,
                         const ChannelSecurity& security)
    : connection_(std::make_unique<Connection>(address, security)) {}

OrderClient::~OrderClient() = default;

absl::StatusOr<v1::GetMixtureResponse> OrderClient::GetMixture(
    uint64_t step, v1::Split split) {
  v1::GetMixtureRequest request;
  request.set_step(step);
  request.set_split(split);
  return connection_->server.Call({.name = "GetMixture"},
                                  connection_->stub.get(),
                                  &v1::OrderService::Stub::GetMixture, request);
}

absl::StatusOr<v1::GetSamplesResponse> OrderClient::GetSamples(uint64_t step,
                                                               v1::Split split,
                                                               uint32_t first) {
  v1::GetSamplesRequest request;
  request.set_step(step);
  request.set_split(split);
  request.set_first(first);
  return connection_->server.Call({.name = "GetSamples"},
                                  connection_->stub.get(),
                                  &v1::OrderService::Stub::GetSamples, request);
}

}  // namespace ballast
