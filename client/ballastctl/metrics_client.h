#ifndef BALLAST_CLIENT_BALLASTCTL_METRICS_CLIENT_H_
#define BALLAST_CLIENT_BALLASTCTL_METRICS_CLIENT_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/channel_security.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// A client of one server's MetricsService (proto/metrics_service.proto).
// Thread-safe. Errors: the server's, naming its address; UNIMPLEMENTED from a
// server that does not know the service; as LoaderClient's for address, TLS and
// token.
class MetricsClient {
 public:
  // Does not connect yet.
  explicit MetricsClient(const std::string& address,
                         const ChannelSecurity& security = {});
  ~MetricsClient();

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

  const std::string& address() const;

 private:
  struct Connection;  // defined in the .cc file: keeps gRPC's headers out of
                      // the commands

  const std::unique_ptr<const Connection> connection_;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_METRICS_CLIENT_H_
