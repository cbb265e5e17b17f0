#ifndef BALLAST_SERVER_SERVE_SERVICE_LISTENING_H_
#define BALLAST_SERVER_SERVE_SERVICE_LISTENING_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "server/delivery/loader.h"
#include "server/serve/http/http_server.h"
#include "server/serve/monitor/balance_board.h"
#include "server/serve/monitor/server_state.h"
#include "server/serve/monitor/state_history.h"
#include "server/serve/security/server_security.h"
#include "server/serve/service/compared_servers.h"

namespace ballast {

// The roles to rehearse: `first_ranks`, roles of train, then the same roles of
// the job's other splits. Pure.
std::vector<v1::Role> RolesToRehearse(const std::vector<v1::Role>& first_ranks,
                                      const v1::Job& job);

// Builds the first block of each role, micro-batch 0 of step 0, as if a rank
// had requested it, and releases it. This shows that the schedule can be made,
// that the data can be read and decoded, and that there is memory for blocks. A
// job that continues at a later step does not use these blocks; they are among
// the first to be evicted. OK if the data have no step 0. Blocks until they are
// built, which serve.read_timeout bounds if a disk hangs. Errors: as
// Loader::OpenStream and the block, with the role.
absl::Status Rehearse(Loader* loader, const std::vector<v1::Role>& roles);

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

// The sources of the page and the metrics, and the rules of who may see them.
// Nothing is owned; all must outlive the server.
struct PageSubjects {
  const ServerSecurity* security = nullptr;
  const ServerState* state = nullptr;
  const BalanceBoard* balance = nullptr;
  const StateHistory* history = nullptr;
  ComparedServers* compared = nullptr;
};

// Serves the page and /metrics (pages.h) at serve.http, over TLS if there is
// security.tls. Null without serve.http. Errors: as HttpServer::Start, naming
// serve.http.
absl::StatusOr<std::unique_ptr<HttpServer>> StartPageServer(
    const v1::Config& config, const PageSubjects& subjects);

// Addresses that a server listens at: `unix:/path` or `host:port`.

// Checks that a server with the settings `security` may listen at `address`
// (CheckExposure). Also covers addresses that no configuration file was checked
// for. Errors: INVALID_ARGUMENT, naming serve.listen.
absl::Status CheckListen(absl::string_view address,
                         const v1::Security& security);

// Tries to listen at `address` and stops at once. OK if it works at any of the
// host's addresses, which is all that gRPC needs; otherwise the system's error
// for the first of them. May ask the name service. Errors: NOT_FOUND (no such
// host, no directory for the socket), ALREADY_EXISTS (taken), the system's;
// messages name serve.listen and the address.
absl::Status TryListen(absl::string_view address);

// Removes the socket file at `path` that a killed server left. OK if it does
// not exist. Errors: ALREADY_EXISTS (a server answers there, or the file is no
// socket), PERMISSION_DENIED, INVALID_ARGUMENT (too long for a socket).
absl::Status RemoveStaleSocket(const std::string& path);

// `address` with its port replaced by `port`, which the system chose.
std::string WithPort(absl::string_view address, int port);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_LISTENING_H_
