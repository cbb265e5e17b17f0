#ifndef BALLAST_SERVER_CONFIG_LISTEN_ADDRESS_H_
#define BALLAST_SERVER_CONFIG_LISTEN_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace ballast {

// An address as the configuration writes it: `unix:/path` or `host:port`, where
// host is a name, an IPv4 address or an IPv6 address in brackets.
struct ListenAddress {
  bool is_unix = false;
  std::string path;  // of a Unix socket
  std::string host;  // of TCP, without brackets
  uint16_t port = 0;

  // Whether only processes of this machine reach it: a Unix socket,
  // `localhost`, 127.0.0.0/8 or ::1.
  bool IsLocal() const;
};

// Errors: INVALID_ARGUMENT, its message "found ...; wanted ...".
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);

// Whether a server that is secured as `security` says may listen at `address`,
// which is `text` parsed. Errors: INVALID_ARGUMENT, its message "found ...;
// wanted ...", which names the keys to set.
absl::Status CheckExposure(const ListenAddress& address, absl::string_view text,
                           const v1::Security& security);

// The same for serve.http, which is plain HTTP: other machines may reach it
// only with security.insecure, since nothing on the way, tokens included, is
// hidden.
absl::Status CheckHttpExposure(const ListenAddress& address,
                               absl::string_view text,
                               const v1::Security& security);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_LISTEN_ADDRESS_H_
