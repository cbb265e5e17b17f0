#include "trainer_shim/host/gloo_peers.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/net_address.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// Empty for other families than IPv4 and IPv6.
std::string AddressText(const sockaddr* address) {
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
    const std::string text = AddressText(one->ifa_addr);
    if (text.empty() || (interface != one->ifa_name && interface != text)) {
      continue;
    }
    // IPv4 first: an IPv6 address may be valid only on the link.
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
      return AddressText(reinterpret_cast<const sockaddr*>(&own));
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

namespace {

// "12 bytes in 2 slices".
std::string SizesText(const SliceSizes& sizes) {
  return absl::StrCat(sizes.bytes, " bytes in ", sizes.slices, " slices");
}

absl::Status CheckSizes(uint32_t from, uint32_t to, const SliceSizes& sent,
                        const SliceSizes& expected) {
  if (sent == expected) return absl::OkStatus();
  const bool only_order =
      sent.bytes == expected.bytes && sent.slices == expected.slices;
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", from, " sends ", SizesText(sent), " to rank ", to,
                   ", which expects ", SizesText(expected),
                   only_order ? " of other lengths" : "",
                   "; the two follow different schedules or steps"));
}

}  // namespace

void SliceSizes::Add(uint64_t slice_bytes) {
  if (slice_bytes == 0) return;
  ++slices;
  bytes += slice_bytes;
  // FNV-1a over lengths, one length at a time.
  hash = (hash ^ slice_bytes) * 0x100000001b3;
}

std::vector<PeerHeader> GetHeaders(uint64_t run, uint64_t number, uint32_t from,
                                   uint32_t size,
                                   absl::Span<const SendSlice> sends,
                                   absl::Span<const ReceiveSlice> receives) {
  std::vector<PeerHeader> headers(size);
  for (uint32_t to = 0; to < size; ++to) {
    headers[to].magic = PeerHeader::kMagic;
    headers[to].run = run;
    headers[to].number = number;
    headers[to].from = from;
    headers[to].to = to;
  }
  for (const SendSlice& slice : sends) {
    headers[slice.peer].sends.Add(slice.bytes.size());
  }
  for (const ReceiveSlice& slice : receives) {
    headers[slice.peer].receives.Add(slice.bytes.size());
  }
  return headers;
}

absl::Status CheckHeader(const PeerHeader& got, const PeerHeader& sent) {
  if (got.magic != PeerHeader::kMagic || got.run != sent.run ||
      got.from != sent.to || got.to != sent.from) {
    return absl::FailedPreconditionError(absl::StrCat(
        "what answers rank ", sent.from, " in place of rank ", sent.to,
        " is not that rank of this run: another start of the job or another "
        "program uses its port; start all ranks again"));
  }
  if (got.number != sent.number) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", got.from, " is at exchange ", got.number,
                     " and rank ", sent.from, " at exchange ", sent.number,
                     "; the two follow different schedules or steps"));
  }
  const absl::Status to_me =
      CheckSizes(got.from, got.to, got.sends, sent.receives);
  if (!to_me.ok()) return to_me;
  return CheckSizes(sent.from, sent.to, sent.sends, got.receives);
}

namespace {

constexpr int kKeepAliveProbes = 3;
// The kernel ends a connection for one late acknowledgement if it is given
// less: machines that are merely busy would lose their peers.
constexpr int64_t kShortestSilenceS = 10;
constexpr int64_t kLongestSilenceS = 32767;  // TCP_KEEPIDLE's bound.

// Empty for other families than IPv4 and IPv6.
std::optional<TcpEnd> GetEnd(const sockaddr_storage& address) {
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

std::optional<TcpConnection> GetConnection(int fd) {
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
  const std::optional<TcpEnd> own_end = GetEnd(own);
  const std::optional<TcpEnd> peer = GetEnd(connection.peer_address);
  if (!own_end || !peer) return std::nullopt;
  connection.own = *own_end;
  connection.peer = *peer;
  return connection;
}

void SetOption(int fd, int level, int option, int value) {
  // If this fails, the kernel's default stays, which only detects lost peers
  // later.
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
    if (auto connection = GetConnection(fd)) found.push_back(*connection);
  }
  return found;
}

void EndWhenSilent(int fd, absl::Duration silent_after) {
  const int seconds = std::clamp(absl::ToInt64Seconds(silent_after),
                                 kShortestSilenceS, kLongestSilenceS);
  // Idle connections: the first probe after half of the time, the others in the
  // rest of it. Data that is unacknowledged or that the peer's closed window
  // keeps back: the whole time.
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds / 2);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL,
            std::max(seconds / 2 / kKeepAliveProbes, 1));
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * seconds);
}

}  // namespace ballast
