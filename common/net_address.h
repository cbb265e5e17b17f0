#ifndef BALLAST_COMMON_NET_ADDRESS_H_
#define BALLAST_COMMON_NET_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// A server's address: `unix:PATH` or `host:port`, where host is a name, an IPv4
// address or an IPv6 address in brackets.
struct NetAddress {
  std::string path;  // Unix socket; empty for TCP
  std::string host;  // TCP, without brackets
  uint16_t port = 0;

  bool is_unix() const { return !path.empty(); }

  // Whether only processes on this machine can reach it: a Unix socket,
  // `localhost`, 127.0.0.0/8 or ::1.
  bool IsLocal() const;
};

// Parses an address, without resolving names. A Unix socket's path may be
// relative. Errors: INVALID_ARGUMENT; the message states only the form wanted
// ("wanted unix:/path or host:port"), for the caller to append to the value
// found.
absl::StatusOr<NetAddress> ParseNetAddress(absl::string_view text);

// The path of `unix:PATH` (unix:///path is /path); empty for any other text.
// Points into `address`.
absl::string_view UnixPath(absl::string_view address);

}  // namespace ballast

#endif  // BALLAST_COMMON_NET_ADDRESS_H_
