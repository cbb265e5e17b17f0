#include "server/service/peer_channel.h"

#include <grpcpp/grpcpp.h>

#include "common/status_macros.h"
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

}  // namespace ballast
