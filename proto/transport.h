#ifndef BALLAST_PROTO_TRANSPORT_H_
#define BALLAST_PROTO_TRANSPORT_H_

#include <cstdint>

namespace ballast {

// What clients and servers must agree on beside the messages themselves.

// Most bytes of a PullResponse.Chunk.
inline constexpr uint64_t kMaxChunkBytes = uint64_t{1} << 20;

// Most lanes of a Pull (PullRequest.Open.lanes), and the bytes of its ticket.
inline constexpr uint32_t kMaxLanes = 8;
inline constexpr uint64_t kLaneTicketBytes = 16;

// A client pings a server that has been silent for so long, also while no
// stream moves, and gives it up when no answer comes within the timeout. A
// server must allow pings this frequent, or gRPC ends the connection with
// "too_many_pings": GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS at
// most kMinPingIntervalMs, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS 1.
inline constexpr int kKeepaliveTimeMs = 10'000;
inline constexpr int kKeepaliveTimeoutMs = 10'000;
inline constexpr int kMinPingIntervalMs = 5'000;

}  // namespace ballast

#endif  // BALLAST_PROTO_TRANSPORT_H_
