#include "server/http/pages.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "server/http/page_guard.h"
#include "server/http/page_html.h"

namespace ballast {
namespace {

HttpResponse Refuse(const absl::Status& why) {
  const bool unknown = absl::IsUnauthenticated(why);
  HttpResponse response =
      PlainAnswer(unknown ? 401 : 403, absl::string_view(why.message()));
  if (unknown) response.headers = "WWW-Authenticate: Bearer\r\n";
  return response;
}

HttpResponse Answer(const PageSources& sources, const std::string& policy,
                    const HttpRequest& request) {
  std::optional<HttpResponse> refused = RefuseAtDoor(request, sources.is_local);
  if (refused.has_value()) return *std::move(refused);
  if (request.path == "/") {
    HttpResponse response;
    response.content_type = "text/html; charset=utf-8";
    response.body = kPageHtml;
    response.headers = policy;
    return response;
  }
  const bool metrics = request.path == "/metrics";
  if (!metrics && request.path != "/api/status") {
    return PlainAnswer(404, "nothing here; wanted /, /metrics or /api/status");
  }
  if (sources.check != nullptr) {
    const absl::Status allowed = sources.check(request.authorization);
    if (!allowed.ok()) return Refuse(allowed);
  }
  HttpResponse response;
  response.content_type =
      metrics ? "text/plain; version=0.0.4; charset=utf-8" : "application/json";
  response.body = metrics ? sources.metrics() : sources.status();
  return response;
}

}  // namespace

HttpServer::Handler MakePages(PageSources sources) {
  return [sources = std::move(sources),
          policy = PagePolicy(kPageHtml)](const HttpRequest& request) {
    return Answer(sources, policy, request);
  };
}

}  // namespace ballast
