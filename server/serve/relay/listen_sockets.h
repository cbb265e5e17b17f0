#ifndef BALLAST_SERVER_SERVE_RELAY_LISTEN_SOCKETS_H_
#define BALLAST_SERVER_SERVE_RELAY_LISTEN_SOCKETS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/small_file.h"

namespace ballast {

// The sockets that listen at one address of serve.listen.
struct ListenSockets {
  // As configured, with the port that the system chose.
  std::string address;
  // One for each address of the host; a wildcard has one for IPv4 and IPv6.
  std::vector<OwnedFd> sockets;
  sockaddr_storage first = {};  // the first's address
  socklen_t first_bytes = 0;
  uint64_t inode = 0;  // of a Unix socket's file

  bool is_unix() const { return first.ss_family == AF_UNIX; }
  // Removes a Unix socket's file, unless another has taken its place.
  void RemoveFile() const;
};

// Listens at `address`, `unix:/path` or `host:port`; port 0 lets the system
// choose. Replaces a socket file that a killed server left; sockets are for
// their owner and group only. OK if it works at any of a host's addresses. May
// ask the name service. Errors: as RemoveStaleSocket; NOT_FOUND (no such host,
// no directory for the socket), ALREADY_EXISTS (taken), the system's; messages
// name serve.listen and the address.
absl::StatusOr<ListenSockets> OpenListenSockets(absl::string_view address);

// Removes the socket file at `path` that a killed server left. OK if it does
// not exist. Errors: ALREADY_EXISTS (a server answers there, or the file is no
// socket), PERMISSION_DENIED, INVALID_ARGUMENT (too long for a socket).
absl::Status RemoveStaleSocket(const std::string& path);

// A connection to the first of `sockets`, which need not be there yet. Errors:
// NOT_FOUND (nothing listens there), UNAVAILABLE (cannot say: no descriptor, or
// its queue is full).
absl::StatusOr<OwnedFd> ConnectTo(const ListenSockets& sockets);

// An IPv4 or IPv6 address with its port. IPv4 within IPv6 is IPv4.
struct NumericAddress {
  std::string text;  // 10.0.0.1:4711, [fe80::1]:4711
  // Identifies the peer: 10.0.0.1, or the first 64 bits of an IPv6 address,
  // since one host may use all addresses of a /64.
  std::string peer_key;
  bool is_v6 = false;
};
NumericAddress ToNumeric(const sockaddr_storage& address);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_RELAY_LISTEN_SOCKETS_H_
