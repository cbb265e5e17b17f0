#include "server/config/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/config/key_report.h"
#include "server/config/yaml_scalar.h"

namespace ballast {
namespace {

bool IsHostName(absl::string_view host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
  });
}

bool IsIpv6(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

absl::Status Fault(absl::string_view text, absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("found ", Shown(text), "; wanted ", wanted));
}

}  // namespace

bool ListenAddress::IsLocal() const {
  if (is_unix || absl::EqualsIgnoreCase(host, "localhost")) return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 &&
         std::memcmp(&v6, &in6addr_loopback, sizeof v6) == 0;
}

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text) {
  ListenAddress address;
  if (absl::StartsWith(text, "unix:")) {
    const absl::string_view path = absl::StripPrefix(text, "unix:");
    constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
    if (!absl::StartsWith(path, "/") || path.size() > kLongest) {
      return Fault(text, absl::StrCat("unix: and an absolute path of at most ",
                                      kLongest, " bytes"));
    }
    address.is_unix = true;
    address.path = std::string(path);
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) {
    return Fault(text, "unix:/path or host:port");
  }
  const std::optional<uint64_t> port = ParseUnsigned(text.substr(colon + 1));
  if (!port.has_value() || *port > 65535) {
    return Fault(text, "unix:/path or host:port with a port of 0 to 65535");
  }
  address.port = static_cast<uint16_t>(*port);
  absl::string_view host = text.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]")) {
    address.host = std::string(host);
    if (!IsIpv6(address.host)) {
      return Fault(text, "an IPv6 address within the brackets");
    }
    return address;
  }
  if (!IsHostName(host)) {
    return Fault(text,
                 "unix:/path or host:port, where host is a name, an IPv4 "
                 "address or an IPv6 address in brackets");
  }
  address.host = std::string(host);
  return address;
}

absl::Status CheckExposure(const ListenAddress& address, absl::string_view text,
                           const v1::Security& security) {
  if (address.is_unix) return absl::OkStatus();
  if (!security.has_tls() && !security.tokens_file().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found ", Shown(text),
        " with security.tokens_file and without security.tls, where tokens "
        "would be there for all to read; wanted a Unix socket, or "
        "security.tls"));
  }
  if (address.IsLocal() || security.insecure()) return absl::OkStatus();
  if (!security.has_tls()) {
    return Fault(text,
                 "a Unix socket, a loopback address, or security.tls, since "
                 "other machines reach it; security.insecure: true if all of "
                 "them may read the data");
  }
  if (security.tls().client_ca().empty() && security.tokens_file().empty()) {
    return Fault(
        text,
        "security.tls.client_ca or security.tokens_file, since other "
        "machines reach it; security.insecure: true if all of them may "
        "read the data");
  }
  return absl::OkStatus();
}

absl::Status CheckHttpExposure(const ListenAddress& address,
                               absl::string_view text,
                               const v1::Security& security) {
  if (address.is_unix || address.host.find(':') != std::string::npos) {
    return Fault(text, "host:port with a name or an IPv4 address");
  }
  if (address.IsLocal() || security.insecure()) return absl::OkStatus();
  return Fault(text,
               "a loopback address, since HTTP goes in the clear; "
               "security.insecure: true if whoever is on the way may read it");
}

}  // namespace ballast
