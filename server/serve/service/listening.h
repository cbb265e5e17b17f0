#ifndef BALLAST_SERVER_SERVE_SERVICE_LISTENING_H_
#define BALLAST_SERVER_SERVE_SERVICE_LISTENING_H_

#include <grpcpp/grpcpp.h>

#include <functional>
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
#include "server/serve/relay/listen_sockets.h"
#include "server/serve/relay/relay.h"
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

// A gRPC server that listens, with health checking and reflection. Relays
// accept its connections (relay.h).
struct CallServer {
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
  // One for each address of serve.listen, in its order.
  std::vector<std::unique_ptr<Relay>> relays;
  // The same, with the ports that the system chose.
  std::vector<std::string> addresses;
};

// The sockets of every address of serve.listen, in its order. Errors: as
// OpenListenSockets.
absl::StatusOr<std::vector<ListenSockets>> OpenAllSockets(
    const v1::Serve& serve);

// Answers calls of `services` that come at `sockets`, which `security` admits,
// within bounds on messages, calls and `places`. `services` are not owned and
// must outlive the server. `on_lost` is called from another thread if an
// address is lost for good (Relay::Settings). Errors: as Relay::Start;
// UNAVAILABLE (gRPC starts no server).
absl::StatusOr<CallServer> StartCallServer(
    std::vector<ListenSockets> sockets, const ServerSecurity& security,
    absl::Span<grpc::Service* const> services,
    std::shared_ptr<ConnectionPlaces> places,
    std::function<void(const absl::Status&)> on_lost);

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

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_LISTENING_H_
