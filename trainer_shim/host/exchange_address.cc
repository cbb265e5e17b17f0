#include "trainer_shim/host/exchange_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/net_address.h"

namespace ballast {
namespace {

// Empty for other families than IPv4 and IPv6.
std::string Text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr,
              text, sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6,
              &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof(text));
  }
  return text;
}

absl::StatusOr<std::string> AddressOfInterface(const std::string& interface) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) {
    return absl::InternalError(
        absl::StrCat("listing network interfaces: ", std::strerror(errno)));
  }
  const absl::Cleanup free = [first] { freeifaddrs(first); };
  std::string found;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const std::string text = Text(one->ifa_addr);
    if (text.empty() || (interface != one->ifa_name && interface != text)) {
      continue;
    }
    // IPv4 first: an IPv6 address may be valid on the link only.
    if (found.empty() || one->ifa_addr->sa_family == AF_INET) found = text;
  }
  if (!found.empty()) return found;
  return absl::InvalidArgumentError(
      absl::StrCat("no network interface of this machine is called or has the "
                   "address \"",
                   interface, "\"; `ip address` lists them"));
}

// The address of the interface whose route leads to `server`.
absl::StatusOr<std::string> AddressToward(const NetAddress& server) {
  const std::string name = absl::StrCat(server.host, ":", server.port);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* first = nullptr;
  const int failed = getaddrinfo(
      server.host.c_str(), absl::StrCat(server.port).c_str(), &hints, &first);
  if (failed != 0) {
    return absl::UnavailableError(
        absl::StrCat("server ", name, ": ", gai_strerror(failed)));
  }
  const absl::Cleanup free = [first] { freeaddrinfo(first); };
  int cause = 0;
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next) {
    const int socket_fd = socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket_fd < 0) {
      cause = errno;
      continue;
    }
    const absl::Cleanup close_fd = [socket_fd] { close(socket_fd); };
    sockaddr_storage own = {};
    socklen_t bytes = sizeof(own);
    // A datagram socket connects without sending anything.
    if (connect(socket_fd, one->ai_addr, one->ai_addrlen) == 0 &&
        getsockname(socket_fd, reinterpret_cast<sockaddr*>(&own), &bytes) ==
            0) {
      return Text(reinterpret_cast<const sockaddr*>(&own));
    }
    cause = errno;
  }
  return absl::UnavailableError(
      absl::StrCat("no route from this machine to server ", name, ": ",
                   std::strerror(cause)));
}

}  // namespace

absl::StatusOr<std::string> ExchangeAddress(
    const std::vector<std::string>& servers, const std::string& interface) {
  if (!interface.empty()) return AddressOfInterface(interface);
  for (const std::string& server : servers) {
    const absl::StatusOr<NetAddress> address = ParseNetAddress(server);
    if (address.ok() && !address->IsLocal()) return AddressToward(*address);
  }
  return "127.0.0.1";
}

}  // namespace ballast
