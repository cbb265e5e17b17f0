#include "trainer_shim/host/peer_address.h"

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
#include "common/status_macros.h"

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

namespace {

// Magic, run, length of the IP address, IP address, two bytes a port. Integers
// are little-endian.
constexpr absl::string_view kMagic = "BGP1";

void Append(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(value >> (8 * i) & 0xFF);
}

uint64_t Take(int bytes, absl::string_view* in) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value |= uint64_t{static_cast<uint8_t>((*in)[i])} << (8 * i);
  }
  in->remove_prefix(bytes);
  return value;
}

}  // namespace

absl::StatusOr<std::string> PeerPorts::Encode() const {
  int unused = 0;
  BALLAST_RETURN_IF_ERROR(SocketAddress(ip, 0, &unused).status());
  if (ports.size() > kMaxRanks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a group of ", ports.size(), " ranks over Gloo, wanted at most ",
        kMaxRanks, "; set balance.delivery to direct"));
  }
  std::string out(kMagic);
  Append(run, 8, &out);
  Append(ip.size(), 1, &out);
  out += ip;
  for (const uint16_t port : ports) Append(port, 2, &out);
  return out;
}

absl::StatusOr<PeerPorts> PeerPorts::Decode(absl::string_view bytes,
                                            uint32_t ranks) {
  const size_t found = bytes.size();
  PeerPorts out;
  bool fits = found > kMagic.size() + 9 && bytes.substr(0, 4) == kMagic;
  if (fits) {
    bytes.remove_prefix(kMagic.size());
    out.run = Take(8, &bytes);
    const size_t ip_bytes = Take(1, &bytes);
    fits = bytes.size() == ip_bytes + 2 * size_t{ranks};
    if (fits) {
      out.ip = std::string(bytes.substr(0, ip_bytes));
      bytes.remove_prefix(ip_bytes);
      for (uint32_t i = 0; i < ranks; ++i) out.ports.push_back(Take(2, &bytes));
    }
  }
  int unused = 0;
  if (fits) fits = SocketAddress(out.ip, 0, &unused).ok();
  if (fits) return out;
  return absl::DataLossError(absl::StrCat(
      "a peer gave ", found, " bytes that are not the ports of a group of ",
      ranks, " ranks; do all ranks run the same version?"));
}

absl::StatusOr<sockaddr_storage> SocketAddress(const std::string& ip,
                                               uint16_t port, int* bytes) {
  sockaddr_storage storage = {};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    *bytes = sizeof(*v4);
    return storage;
  }
  if (inet_pton(AF_INET6, ip.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    *bytes = sizeof(*v6);
    return storage;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", ip, "\" is not an IP address"));
}

}  // namespace ballast
