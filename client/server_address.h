#ifndef BALLAST_CLIENT_SERVER_ADDRESS_H_
#define BALLAST_CLIENT_SERVER_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// OK if `address` is `unix:/path`, with a path that a socket can have, or
// `host:port`; `[host]:port` for IPv6. Does not check whether a server listens.
// Errors: INVALID_ARGUMENT, naming the address and what is wrong with it.
absl::Status CheckServerAddress(absl::string_view address);

// The addresses of "A,B,C": at least one, which may be empty. Not checked.
std::vector<std::string> SplitServers(absl::string_view list);

}  // namespace ballast

#endif  // BALLAST_CLIENT_SERVER_ADDRESS_H_
