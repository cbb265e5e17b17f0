#ifndef BALLAST_SERVER_SERVICE_LISTEN_ADDRESS_H_
#define BALLAST_SERVER_SERVICE_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Where a server listens: `unix:/path` or `host:port`.

// The path of a Unix socket; empty for `host:port`.
absl::string_view UnixPath(absl::string_view address);

// OK when nobody but processes of this machine can reach the address: a Unix
// socket, `localhost`, 127.0.0.0/8 or ::1, which are all that may listen while
// there is no TLS. Errors: INVALID_ARGUMENT (no address), UNIMPLEMENTED
// (reaches further), both naming serve.listen.
absl::Status CheckLocalAddress(absl::string_view address);

// Makes way for a Unix socket at `path`: removes a socket file that a server
// left behind when it was killed. A path where there is nothing is fine.
// Errors: ALREADY_EXISTS (a server answers there, or the file is no socket),
// PERMISSION_DENIED, INVALID_ARGUMENT (too long for a socket).
absl::Status RemoveStaleSocket(const std::string& path);

// `address` with the port that the system chose in the place of 0.
std::string WithPort(absl::string_view address, int port);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_LISTEN_ADDRESS_H_
