#ifndef BALLAST_SERVER_SERVE_RELAY_RELAYED_PEER_H_
#define BALLAST_SERVER_SERVE_RELAY_RELAYED_PEER_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/small_file.h"

namespace ballast {

// The other end of a connection that the relay has accepted.
struct RelayedPeer {
  // As gRPC names it: "ipv4:10.0.0.1:4711", or "unix:4711" for process 4711 at
  // a Unix socket.
  std::string name;
  // Of its places and budget: an IP address, of IPv6 the first half, or the
  // process.
  std::string key;
  bool is_unix = false;
  pid_t process = 0;  // at a Unix socket
};

// The peer of the connected socket `fd`.
RelayedPeer GetRelayedPeer(int fd);

// The two ends of a connection to gRPC, ours first. Ours has a name that
// carries the peer's to PullCall and the log: gRPC asks the system for it.
// `prefix` and `number` make it one of its own. Errors: the system's, without
// descriptors or memory.
absl::StatusOr<std::pair<OwnedFd, OwnedFd>> MakeRelayedPair(
    absl::string_view prefix, uint64_t number, const RelayedPeer& peer);

// RelayedPeer::name of a call, of the name that gRPC has for it behind a relay.
// Other names stay. Pure.
std::string RelayedPeerName(absl::string_view grpc_peer);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_RELAY_RELAYED_PEER_H_
