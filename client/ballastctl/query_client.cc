#include "client/ballastctl/query_client.h"

#include <utility>

#include "client/server_channel.h"
#include "common/status_macros.h"
#include "proto/metrics_service.grpc.pb.h"
#include "proto/order_service.grpc.pb.h"
#include "proto/revision_service.grpc.pb.h"

namespace ballast {
namespace {

// The server computes a range of steps.
constexpr absl::Duration kBalanceDeadline = absl::Minutes(1);
// Every server opens its sources.
constexpr absl::Duration kChangeDeadline = absl::Minutes(3);

}  // namespace

struct QueryClient::Connection {
  Connection(const std::string& address, const ChannelSecurity& security)
      : server(address, security),
        metrics(v1::MetricsService::NewStub(server.channel())),
        order(v1::OrderService::NewStub(server.channel())),
        revisions(v1::RevisionService::NewStub(server.channel())) {}

  const ServerChannel server;
  const std::unique_ptr<v1::MetricsService::Stub> metrics;
  const std::unique_ptr<v1::OrderService::Stub> order;
  const std::unique_ptr<v1::RevisionService::Stub> revisions;
};

QueryClient::QueryClient(const std::string& address,
                         const ChannelSecurity& security)
    : connection_(std::make_unique<Connection>(address, security)) {}

QueryClient::~QueryClient() = default;

const std::string& QueryClient::address() const {
  return connection_->server.address();
}

absl::StatusOr<v1::GetStatusResponse> QueryClient::GetStatus() {
  return connection_->server.Call(
      {.name = "GetStatus"}, connection_->metrics.get(),
      &v1::MetricsService::Stub::GetStatus, v1::GetStatusRequest());
}

absl::StatusOr<v1::GetBalanceResponse> QueryClient::GetBalance(
    const v1::GetBalanceRequest& request) {
  return connection_->server.Call(
      {.name = "GetBalance", .deadline = kBalanceDeadline},
      connection_->metrics.get(), &v1::MetricsService::Stub::GetBalance,
      request);
}

absl::StatusOr<v1::GetStatsResponse> QueryClient::GetStats(
    const std::string& prefix) {
  v1::GetStatsRequest request;
  request.set_prefix(prefix);
  return connection_->server.Call({.name = "GetStats"},
                                  connection_->metrics.get(),
                                  &v1::MetricsService::Stub::GetStats, request);
}

absl::Status QueryClient::WatchBalance(
    const v1::WatchBalanceRequest& request,
    absl::FunctionRef<bool(const v1::StepBalance&)> on_balance) {
  BALLAST_RETURN_IF_ERROR(connection_->server.usable());
  grpc::ClientContext context;
  const auto reader = connection_->metrics->WatchBalance(&context, request);
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

absl::StatusOr<v1::GetMixtureResponse> QueryClient::GetMixture(
    uint64_t step, v1::Split split) {
  v1::GetMixtureRequest request;
  request.set_step(step);
  request.set_split(split);
  return connection_->server.Call({.name = "GetMixture"},
                                  connection_->order.get(),
                                  &v1::OrderService::Stub::GetMixture, request);
}

absl::StatusOr<v1::GetSamplesResponse> QueryClient::GetSamples(uint64_t step,
                                                               v1::Split split,
                                                               uint32_t first) {
  v1::GetSamplesRequest request;
  request.set_step(step);
  request.set_split(split);
  request.set_first(first);
  return connection_->server.Call({.name = "GetSamples"},
                                  connection_->order.get(),
                                  &v1::OrderService::Stub::GetSamples, request);
}

absl::StatusOr<v1::GetRevisionsResponse> QueryClient::GetRevisions(
    uint64_t have) {
  v1::GetRevisionsRequest request;
  request.set_have(have);
  return connection_->server.Call(
      {.name = "GetRevisions"}, connection_->revisions.get(),
      &v1::RevisionService::Stub::GetRevisions, request);
}

absl::StatusOr<v1::ChangeResponse> QueryClient::Change(
    const v1::ChangeRequest& request) {
  return connection_->server.Call(
      {.name = "Change", .deadline = kChangeDeadline},
      connection_->revisions.get(), &v1::RevisionService::Stub::Change,
      request);
}

absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> GetClients(
    const ServerOption& option) {
  BALLAST_ASSIGN_OR_RETURN(const ChannelSecurity security,
                           LoadChannelSecurity(option.security));
  std::vector<std::unique_ptr<LoaderClient>> clients;
  for (const std::string& address : SplitServers(option.addresses)) {
    clients.push_back(LoaderClient::CreateSecure(address, security));
  }
  return clients;
}

absl::StatusOr<std::unique_ptr<LoaderClient>> GetClient(
    const ServerOption& option) {
  BALLAST_ASSIGN_OR_RETURN(auto clients, GetClients(option));
  return std::move(clients[0]);
}

absl::StatusOr<std::vector<std::unique_ptr<QueryClient>>> GetQueryClients(
    const ServerOption& option) {
  BALLAST_ASSIGN_OR_RETURN(const ChannelSecurity security,
                           LoadChannelSecurity(option.security));
  std::vector<std::unique_ptr<QueryClient>> clients;
  for (const std::string& address : SplitServers(option.addresses)) {
    clients.push_back(std::make_unique<QueryClient>(address, security));
  }
  return clients;
}

absl::StatusOr<std::unique_ptr<QueryClient>> GetQueryClient(
    const ServerOption& option) {
  BALLAST_ASSIGN_OR_RETURN(auto clients, GetQueryClients(option));
  return std::move(clients[0]);
}

}  // namespace ballast
