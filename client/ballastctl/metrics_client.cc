#include "client/ballastctl/metrics_client.h"

#include "client/server_channel.h"
#include "proto/metrics_service.grpc.pb.h"

namespace ballast {
namespace {

// The server computes a range of steps.
constexpr absl::Duration kBalanceDeadline = absl::Minutes(1);

}  // namespace

struct MetricsClient::Connection {
  Connection(const std::string& address, const ChannelSecurity& security)
      : server(address, security),
        stub(v1::MetricsService::NewStub(server.channel())) {}

  template <typename Request, typename Method>
  auto Call(const CallOptions& options, Method method,
            const Request& request) const {
    return server.Call(options, stub.get(), method, request);
  }

  const ServerChannel server;
  const std::unique_ptr<v1::MetricsService::Stub> stub;
};

MetricsClient::MetricsClient(const std::string& address,
                             const ChannelSecurity& security)
    : connection_(std::make_unique<Connection>(address, security)) {}

MetricsClient::~MetricsClient() = default;

const std::string& MetricsClient::address() const {
  return connection_->server.address();
}

absl::StatusOr<v1::GetStatusResponse> MetricsClient::GetStatus() {
  return connection_->Call({.name = "GetStatus"},
                           &v1::MetricsService::Stub::GetStatus,
                           v1::GetStatusRequest());
}

absl::StatusOr<v1::GetBalanceResponse> MetricsClient::GetBalance(
    const v1::GetBalanceRequest& request) {
  return connection_->Call({.name = "GetBalance", .deadline = kBalanceDeadline},
                           &v1::MetricsService::Stub::GetBalance, request);
}

absl::StatusOr<v1::GetStatsResponse> MetricsClient::GetStats(
    const std::string& prefix) {
  v1::GetStatsRequest request;
  request.set_prefix(prefix);
  return connection_->Call({.name = "GetStats"},
                           &v1::MetricsService::Stub::GetStats, request);
}

absl::Status MetricsClient::WatchBalance(
    const v1::WatchBalanceRequest& request,
    absl::FunctionRef<bool(const v1::StepBalance&)> on_balance) {
  BALLAST_RETURN_IF_ERROR(connection_->server.usable());
  grpc::ClientContext context;
  const auto reader = connection_->stub->WatchBalance(&context, request);
  v1::WatchBalanceResponse response;
  while (reader->Read(&response)) {
    if (on_balance(response.balance())) continue;
    context.TryCancel();
    reader->Finish();
    return absl::OkStatus();
  }
  return connection_->server.Explain({.name = "WatchBalance"},
                                     reader->Finish());
}

}  // namespace ballast
