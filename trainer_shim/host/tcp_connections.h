#ifndef BALLAST_TRAINER_SHIM_HOST_TCP_CONNECTIONS_H_
#define BALLAST_TRAINER_SHIM_HOST_TCP_CONNECTIONS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace ballast {

// One end of a TCP connection.
struct TcpEnd {
  std::string ip;  // text
  uint16_t port = 0;

  friend bool operator==(const TcpEnd& a, const TcpEnd& b) {
    return a.ip == b.ip && a.port == b.port;
  }
};

// A connected socket of this process.
struct TcpConnection {
  int fd = -1;
  TcpEnd own;
  TcpEnd peer;
  sockaddr_storage peer_address = {};
};

// All TCP connections of this process, for a library that keeps its sockets to
// itself. Sockets that other threads open or close meanwhile may be missing or
// gone.
std::vector<TcpConnection> TcpConnections();

// Lets the kernel end the connection once the peer's machine has acknowledged
// nothing for `silent_after`, idle or not. Whole seconds, at least 2.
void EndWhenSilent(int fd, absl::Duration silent_after);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_TCP_CONNECTIONS_H_
