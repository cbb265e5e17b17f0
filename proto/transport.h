#ifndef BALLAST_PROTO_TRANSPORT_H_
#define BALLAST_PROTO_TRANSPORT_H_

#include <cstdint>

namespace ballast {

// Constants that clients and servers must agree on besides the messages.

// Largest PullResponse.Chunk, in bytes.
inline constexpr uint64_t kMaxChunkBytes = uint64_t{1} << 20;

// Most lanes of a Pull (PullRequest.Open.lanes); length of its ticket in bytes.
inline constexpr uint32_t kMaxLanes = 8;
inline constexpr uint64_t kLaneTicketBytes = 16;

// A client pings a server that has been silent for kKeepaliveTimeMs, even if no
// stream is active, and gives it up if no answer comes within the timeout. A
// server must allow pings this frequent
// (GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS at most
// kMinPingIntervalMs, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS 1), or gRPC ends
// the connection with "too_many_pings".
inline constexpr int kKeepaliveTimeMs = 10'000;
inline constexpr int kKeepaliveTimeoutMs = 10'000;
inline constexpr int kMinPingIntervalMs = 5'000;

}  // namespace ballast

#endif  // BALLAST_PROTO_TRANSPORT_H_
