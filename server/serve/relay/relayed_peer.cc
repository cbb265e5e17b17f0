#include "server/serve/relay/relayed_peer.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/serve/relay/listen_sockets.h"

namespace ballast {
namespace {

constexpr char kNamePrefix[] = "ballast.";
constexpr char kGrpcPrefix[] = "unix-abstract:ballast.";

}  // namespace

RelayedPeer GetRelayedPeer(int fd) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length);
  if (storage.ss_family == AF_UNIX) {
    ucred who = {};
    socklen_t bytes = sizeof(who);
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes);
    return {absl::StrCat("unix:", who.pid),
            absl::StrCat("process ", who.pid, " of user ", who.uid), true,
            who.pid};
  }
  const NumericAddress address = ToNumeric(storage);
  return {absl::StrCat(address.is_v6 ? "ipv6:" : "ipv4:", address.text),
          address.peer_key};
}

absl::StatusOr<std::pair<OwnedFd, OwnedFd>> MakeRelayedPair(
    absl::string_view prefix, uint64_t number, const RelayedPeer& peer) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                 ends) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  std::pair<OwnedFd, OwnedFd> pair = {OwnedFd(ends[0]), OwnedFd(ends[1])};
  const std::string name =
      absl::StrCat(kNamePrefix, prefix, number, ".", peer.name);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), bytes);
  // Without a name the client counts as one at a Unix socket.
  static_cast<void>(bind(
      ends[0], reinterpret_cast<const sockaddr*>(&address),
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes)));
  return pair;
}

std::string RelayedPeerName(absl::string_view grpc_peer) {
  absl::string_view rest = grpc_peer;
  if (!absl::ConsumePrefix(&rest, kGrpcPrefix)) return std::string(grpc_peer);
  const size_t end = rest.find('.');  // of the connection's number
  return std::string(end == rest.npos ? grpc_peer : rest.substr(end + 1));
}

}  // namespace ballast
