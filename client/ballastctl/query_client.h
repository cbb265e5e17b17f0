#ifndef BALLAST_CLIENT_BALLASTCTL_QUERY_CLIENT_H_
#define BALLAST_CLIENT_BALLASTCTL_QUERY_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/loader_client.h"
#include "common/channel_security.h"
#include "proto/metrics_service.pb.h"
#include "proto/order_service.pb.h"
#include "proto/revision_service.pb.h"

namespace ballast {

// A client of one server's MetricsService, OrderService and RevisionService
// (proto/metrics_service.proto, proto/order_service.proto,
// proto/revision_service.proto). Thread-safe.
// Errors: the server's, naming its address; UNIMPLEMENTED from a server that
// does not know the service; as LoaderClient's for address, TLS and token.
class QueryClient {
 public:
  // Connects at the first call.
  explicit QueryClient(const std::string& address,
                       const ChannelSecurity& security = {});
  ~QueryClient();

  absl::StatusOr<v1::GetStatusResponse> GetStatus();
  // A range of steps may take the server a minute.
  absl::StatusOr<v1::GetBalanceResponse> GetBalance(
      const v1::GetBalanceRequest& request);
  // The instruments whose names begin with `prefix`.
  absl::StatusOr<v1::GetStatsResponse> GetStats(const std::string& prefix);
  // Passes each step's balance to `on_balance`. Blocks, without a deadline,
  // until `on_balance` returns false or the server ends the call.
  absl::Status WatchBalance(
      const v1::WatchBalanceRequest& request,
      absl::FunctionRef<bool(const v1::StepBalance&)> on_balance);

  absl::StatusOr<v1::GetMixtureResponse> GetMixture(uint64_t step,
                                                    v1::Split split);
  // The samples from number `first` of the step on, as many as one answer
  // holds.
  absl::StatusOr<v1::GetSamplesResponse> GetSamples(uint64_t step,
                                                    v1::Split split,
                                                    uint32_t first);

  // The texts of changes after number `have`.
  absl::StatusOr<v1::GetRevisionsResponse> GetRevisions(uint64_t have);
  // Takes up to three minutes.
  absl::StatusOr<v1::ChangeResponse> Change(const v1::ChangeRequest& request);

  const std::string& address() const;

 private:
  struct Connection;  // defined in the .cc file: keeps gRPC's headers out of
                      // the commands

  const std::unique_ptr<const Connection> connection_;
};

// The servers that a command asks, and the files that secure the connection.
struct ServerOption {
  std::string addresses;  // separated by commas
  SecurityFiles security;
};

// One client for each address; at least one. Errors: as LoadChannelSecurity.
absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> GetClients(
    const ServerOption& option);
absl::StatusOr<std::vector<std::unique_ptr<QueryClient>>> GetQueryClients(
    const ServerOption& option);
// The clients of the first address.
absl::StatusOr<std::unique_ptr<LoaderClient>> GetClient(
    const ServerOption& option);
absl::StatusOr<std::unique_ptr<QueryClient>> GetQueryClient(
    const ServerOption& option);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_QUERY_CLIENT_H_
