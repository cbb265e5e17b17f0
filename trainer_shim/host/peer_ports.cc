#include "trainer_shim/host/peer_ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
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
