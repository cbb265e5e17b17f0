#include "client/server_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/tls_diagnosis.h"
#include "common/grpc_status.h"
#include "common/net_address.h"
#include "proto/transport.h"

namespace ballast {

namespace {

// A step of 131,072 samples takes some 8 MiB.
constexpr int kMaxControlMessage = 256 << 20;
// A chunk and its framing.
constexpr int kMaxPullMessage = static_cast<int>(kMaxChunkBytes) + 1024;

// Longest search for a TLS fault.
constexpr absl::Duration kDiagnosis = absl::Seconds(2);

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ChannelSecurity& security,
                                           int max_message,
                                           const std::string& peer = "") {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(max_message);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // A Pull may be idle for as long as a step takes.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Calls fail while a channel waits to reconnect, so it must not wait longer
  // than their callers do before they retry.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Every client has its own connection, so that ranks in one process do not
  // share one connection's window.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Servers are inside the cluster: a proxy to the outside cannot reach them.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  ChannelSecurity expected = security;
  const auto named = ParseNetAddress(address);
  const bool to_peer = !peer.empty() && named.ok() && !named->is_unix();
  if (to_peer && !security.ca.empty() && expected.server_name.empty()) {
    expected.server_name = named->host;
  }
  SetSecurityArguments(expected, &arguments);
  const auto credentials = ChannelCredentialsFor(security, address);
  return grpc::CreateCustomChannel(
      to_peer ? peer : address,
      credentials.ok() ? *credentials : grpc::InsecureChannelCredentials(),
      arguments);
}

absl::Status CheckAddress(const std::string& address,
                          const ChannelSecurity& security) {
  BALLAST_RETURN_IF_ERROR(CheckServerAddress(address));
  return ChannelCredentialsFor(security, address).status();
}

}  // namespace

ServerChannel::ServerChannel(const std::string& address,
                             const ChannelSecurity& security)
    : address_(address),
      security_(security),
      // gRPC's own message would only say that there is no channel.
      usable_(CheckAddress(address, security)),
      channel_(MakeChannel(address, security, kMaxControlMessage)) {}

absl::Status ServerChannel::Explain(const CallOptions& options,
                                    const grpc::Status& status) const {
  absl::Status result = FromGrpcStatus(status);
  if (!options.explain) return Named(options.name, result);
  if (absl::IsCancelled(result)) {
    // Unary calls are never cancelled here: the server is shutting down.
    result = absl::UnavailableError("the server is shutting down");
  } else if (absl::IsUnavailable(result)) {
    const absl::Status tls = !UnixPath(address_).empty()
                                 ? absl::OkStatus()
                                 : DiagnoseTls(address_, security_, kDiagnosis);
    // Otherwise nothing listens at the address, or the server is going away.
    result = !tls.ok() ? tls
                       : absl::UnavailableError(absl::StrCat(
                             result.message(),
                             "; does `ballast-server serve` run there?"));
  }
  return Named(options.name, result);
}

absl::Status ServerChannel::Named(absl::string_view call,
                                  const absl::Status& status) const {
  return Annotate(status, absl::StrCat("server ", address_, ": ", call));
}

std::shared_ptr<grpc::Channel> MakePullChannel(const std::string& address,
                                               const ChannelSecurity& security,
                                               const std::string& peer) {
  return MakeChannel(address, security, kMaxPullMessage, peer);
}

std::vector<std::string> SplitServers(absl::string_view list) {
  return absl::StrSplit(list, ',');
}

absl::Status CheckServerAddress(absl::string_view address) {
  const absl::StatusOr<NetAddress> parsed = ParseNetAddress(address);
  if (parsed.ok() && (parsed->is_unix() || parsed->port != 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("server address \"", address, "\": ",
                   parsed.ok() ? "wanted a port of 1 to 65535"
                               : std::string(parsed.status().message())));
}

}  // namespace ballast
