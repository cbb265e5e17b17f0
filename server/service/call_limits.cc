#include "server/service/call_limits.h"

#include <grpc/grpc.h>

#include "proto/transport.h"

namespace ballast {
namespace {

// Requests are small; the largest is an Attach with every entry of a
// fingerprint.
constexpr int kMaxRequestBytes = 4 << 20;
// A client opens a few streams on a connection; thousands indicate a fault.
constexpr int kMaxCallsPerConnection = 1024;
constexpr int kHandshakeTimeoutMs = 20'000;
// A token has up to 4096 bytes.
constexpr int kMaxMetadataBytes = 16 << 10;

}  // namespace

void SetCallLimits(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  // A schedule of a large job has tens of megabytes.
  builder->SetMaxSendMessageSize(-1);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              kMaxCallsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      kMinPingIntervalMs);
  // A client that connects and stays silent is dropped.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              kHandshakeTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // Two servers at one port would each get only some of the clients.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace ballast
