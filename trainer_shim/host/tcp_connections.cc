#include "trainer_shim/host/tcp_connections.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"

namespace ballast {
namespace {

constexpr int kKeepAliveProbes = 3;

// Empty for other families than IPv4 and IPv6.
std::optional<TcpEnd> EndOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN];
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return TcpEnd{text, ntohs(v4.sin_port)};
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    return TcpEnd{text, ntohs(v6.sin6_port)};
  }
  return std::nullopt;
}

std::optional<TcpConnection> ConnectionOf(int fd) {
  int type = 0;
  socklen_t bytes = sizeof(type);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 ||
      type != SOCK_STREAM) {
    return std::nullopt;
  }
  TcpConnection connection;
  connection.fd = fd;
  sockaddr_storage own = {};
  bytes = sizeof(own);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes) != 0) {
    return std::nullopt;
  }
  bytes = sizeof(connection.peer_address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&connection.peer_address),
                  &bytes) != 0) {
    return std::nullopt;
  }
  const std::optional<TcpEnd> own_end = EndOf(own);
  const std::optional<TcpEnd> peer = EndOf(connection.peer_address);
  if (!own_end || !peer) return std::nullopt;
  connection.own = *own_end;
  connection.peer = *peer;
  return connection;
}

void SetOption(int fd, int level, int option, int value) {
  // Failure leaves the kernel's default, which only finds lost peers later.
  setsockopt(fd, level, option, &value, sizeof(value));
}

}  // namespace

std::vector<TcpConnection> TcpConnections() {
  std::vector<TcpConnection> found;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return found;
  const absl::Cleanup close_folder = [folder] { closedir(folder); };
  while (const dirent* entry = readdir(folder)) {
    int fd = 0;
    if (!absl::SimpleAtoi(entry->d_name, &fd)) continue;
    if (auto connection = ConnectionOf(fd)) found.push_back(*connection);
  }
  return found;
}

void EndWhenSilent(int fd, absl::Duration silent_after) {
  const int seconds = std::max<int64_t>(absl::ToInt64Seconds(silent_after), 2);
  // Idle connections: the first probe after half of the time, the others in the
  // rest of it. Unacknowledged data: the whole time.
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds / 2);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL,
            std::max(seconds / 2 / kKeepAliveProbes, 1));
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * seconds);
}

}  // namespace ballast
