#ifndef BALLAST_SERVER_SERVICE_LISTENING_H_
#define BALLAST_SERVER_SERVICE_LISTENING_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace ballast {

// Where a server listens: `unix:/path` or `host:port`.

// Whether a server that is secured as `security` says may listen at `address`
// (CheckExposure); also for addresses that no configuration file was checked
// for. Errors: INVALID_ARGUMENT, naming serve.listen.
absl::Status CheckListen(absl::string_view address,
                         const v1::Security& security);

// Why nobody can listen at `address` now: what the system says to a socket that
// tries, of the first of its host's addresses. OK where one can at any of them,
// which is all that gRPC wants. May ask the name service. Errors: NOT_FOUND (no
// such host, no directory for the socket), ALREADY_EXISTS (taken), those of the
// system; messages name serve.listen and the address.
absl::Status TryListen(absl::string_view address);

// Makes way for a Unix socket at `path`: removes a socket file that a server
// left behind when it was killed. A path where there is nothing is fine.
// Errors: ALREADY_EXISTS (a server answers there, or the file is no socket),
// PERMISSION_DENIED, INVALID_ARGUMENT (too long for a socket).
absl::Status RemoveStaleSocket(const std::string& path);

// `address` with the port that the system chose in the place of 0.
std::string WithPort(absl::string_view address, int port);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_LISTENING_H_
