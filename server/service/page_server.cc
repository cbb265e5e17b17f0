#include "server/service/page_server.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "server/config/exposure.h"
#include "server/http/history_json.h"
#include "server/http/pages.h"
#include "server/http/prometheus_text.h"
#include "server/http/status_json.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<HttpServer>> StartPageServer(
    const v1::Config& config, const PageSubjects& subjects) {
  const std::string& address = config.serve().http();
  if (address.empty()) return nullptr;
  BALLAST_ASSIGN_OR_RETURN(const NetAddress parsed,
                           ParseConfiguredAddress(address));
  PageSources pages;
  pages.is_local = parsed.IsLocal();
  pages.metrics = [state = subjects.state] {
    return PrometheusText(state->Metrics());
  };
  pages.status = [state = subjects.state, balance = subjects.balance] {
    return PageJson(state->Status(), state->Metrics(), balance->Current().get(),
                    balance->History());
  };
  pages.history = [state = subjects.state,
                   history = subjects.history](absl::Duration range) {
    return HistoryJson(state->name(), *history, range);
  };
  pages.compared = [compared = subjects.compared](size_t server,
                                                  absl::Duration range) {
    return compared->Json(server, range);
  };
  pages.check = [security = subjects.security](
                    const std::optional<std::string>& authorization) {
    return security->CheckAuthorization(authorization);
  };
  absl::StatusOr<std::unique_ptr<HttpServer>> http = HttpServer::Start(
      address, MakePages(std::move(pages)), subjects.security->tls());
  if (!http.ok()) return Annotate(http.status(), "serve.http");
  const std::string url =
      absl::StrCat((*http)->scheme(), "://", (*http)->address());
  LogInfo("page at ", url, "/, metrics at ", url, "/metrics");
  return http;
}

}  // namespace ballast
