#ifndef BALLAST_SERVER_HTTP_PAGES_H_
#define BALLAST_SERVER_HTTP_PAGES_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "server/http/http_server.h"

namespace ballast {

// What is served where:
//   /            the page (page.html), to anyone who may connect: it holds
//                nothing of the job, and asks for a token where one is needed
//   /metrics     for Prometheus
//   /api/status  what the page shows, as JSON (status_json.h)
// The last two go by `check`; all others are 404. Answers GET and HEAD alone.
struct PageSources {
  std::function<std::string()> metrics;
  std::function<std::string()> status;
  // Whether a request with that `Authorization` may see them: OK, or
  // UNAUTHENTICATED or PERMISSION_DENIED with the reason. Null: anyone may.
  std::function<absl::Status(const std::optional<std::string>&)> check;
  // Whether only this machine reaches the server. Then a request must have come
  // to a numeric address or to localhost, so that no page of another site can
  // read this one under a name of its own (DNS rebinding).
  bool is_local = true;
};

HttpServer::Handler MakePages(PageSources sources);

}  // namespace ballast

#endif  // BALLAST_SERVER_HTTP_PAGES_H_
