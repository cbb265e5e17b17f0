#ifndef BALLAST_SERVER_SERVICE_CALL_SERVER_H_
#define BALLAST_SERVER_SERVICE_CALL_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/security/server_security.h"

namespace ballast {

// A gRPC server that listens, with health checking and reflection.
struct CallServer {
  std::unique_ptr<grpc::Server> server;
  // In the order of serve.listen, with the ports that the system chose.
  std::vector<std::string> addresses;
};

// Listens at every address of serve.listen for calls of `services`, which
// `security` admits, within bounds on messages and calls. Sockets are for their
// owner and group only; a socket file that a killed server left is replaced.
// `services` are not owned and must outlive the server. Errors: as
// RemoveStaleSocket and TryListen; UNAVAILABLE (gRPC does not listen, and does
// not say why).
absl::StatusOr<CallServer> StartCallServer(
    const v1::Serve& serve, const ServerSecurity& security,
    absl::Span<grpc::Service* const> services);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_CALL_SERVER_H_
