#include "common/net_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ballast {
namespace {

bool IsHostName(absl::string_view host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
  });
}

// Accepts a zone, as in fe80::1%eth0.
bool IsIpv6(absl::string_view host) {
  in6_addr address;
  return inet_pton(AF_INET6,
                   std::string(host.substr(0, host.find('%'))).c_str(),
                   &address) == 1;
}

// Digits only: no sign and no blanks.
bool ParsePort(absl::string_view text, uint16_t* port) {
  uint32_t number = 0;
  if (text.empty() ||
      !std::all_of(text.begin(), text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &number) || number > UINT16_MAX) {
    return false;
  }
  *port = static_cast<uint16_t>(number);
  return true;
}

absl::Status Wanted(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("wanted ", what));
}

}  // namespace

bool NetAddress::IsLocal() const {
  if (is_unix() || absl::EqualsIgnoreCase(host, "localhost")) return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 &&
         std::memcmp(&v6, &in6addr_loopback, sizeof v6) == 0;
}

absl::string_view UnixPath(absl::string_view address) {
  if (!absl::ConsumePrefix(&address, "unix:")) return "";
  if (absl::StartsWith(address, "///")) address.remove_prefix(2);
  return address;
}

absl::StatusOr<NetAddress> ParseNetAddress(absl::string_view text) {
  NetAddress address;
  if (absl::StartsWith(text, "unix:")) {
    const absl::string_view path = UnixPath(text);
    // The kernel's field also holds a zero byte.
    constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
    if (path.empty() || path.size() > kLongest) {
      return Wanted(
          absl::StrCat("unix: and a path of 1 to ", kLongest, " bytes"));
    }
    address.path = std::string(path);
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) {
    return Wanted("unix:/path or host:port");
  }
  if (!ParsePort(text.substr(colon + 1), &address.port)) {
    return Wanted("unix:/path or host:port with a port of at most 65535");
  }
  absl::string_view host = text.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]")) {
    if (!IsIpv6(host)) return Wanted("an IPv6 address within the brackets");
  } else if (!IsHostName(host)) {
    return Wanted(
        "unix:/path or host:port, where host is a name, an IPv4 address or an "
        "IPv6 address in brackets");
  }
  address.host = std::string(host);
  return address;
}

}  // namespace ballast
