#ifndef BALLAST_SERVER_SERVICE_PAGE_SERVER_H_
#define BALLAST_SERVER_SERVICE_PAGE_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/http/http_server.h"
#include "server/monitor/balance_board.h"
#include "server/monitor/server_state.h"
#include "server/monitor/state_history.h"
#include "server/security/server_security.h"
#include "server/service/compared_servers.h"

namespace ballast {

// What the page and the metrics show, and who may see it. Nothing is owned; all
// must outlive the server.
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

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_PAGE_SERVER_H_
