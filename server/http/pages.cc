#include "server/http/pages.h"

#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
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

// The range of /api/history and /api/compared; nullopt: none that can be
// answered.
std::optional<absl::Duration> RangeOf(const HttpRequest& request) {
  const auto found = request.query.find("seconds");
  uint32_t seconds = 0;
  if (found == request.query.end() ||
      !absl::SimpleAtoi(found->second, &seconds) || seconds < 60 ||
      seconds > 86400) {
    return std::nullopt;
  }
  return absl::Seconds(seconds);
}

// The server of /api/compared; the first if none is named, and beyond all of
// them if what is named is no number.
size_t ServerOf(const HttpRequest& request) {
  const auto found = request.query.find("server");
  if (found == request.query.end()) return 0;
  uint32_t server = 0;
  return absl::SimpleAtoi(found->second, &server) ? server : SIZE_MAX;
}

HttpResponse DataOf(const PageSources& sources, const HttpRequest& request) {
  HttpResponse response;
  response.content_type = "application/json";
  if (request.path == "/metrics") {
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = sources.metrics();
  } else if (request.path == "/api/status") {
    response.body = sources.status();
  } else {
    const std::optional<absl::Duration> range = RangeOf(request);
    if (!range.has_value()) {
      return PlainAnswer(400, "wanted ?seconds=N, a number of 60 to 86400");
    }
    response.body = request.path == "/api/history"
                        ? sources.history(*range)
                        : sources.compared(ServerOf(request), *range);
  }
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
  if (request.path != "/metrics" && request.path != "/api/status" &&
      request.path != "/api/history" && request.path != "/api/compared") {
    return PlainAnswer(404,
                       "nothing here; wanted /, /metrics, /api/status, "
                       "/api/history or /api/compared");
  }
  if (sources.check != nullptr) {
    const absl::Status allowed = sources.check(request.authorization);
    if (!allowed.ok()) return Refuse(allowed);
  }
  return DataOf(sources, request);
}

}  // namespace

HttpServer::Handler MakePages(PageSources sources) {
  return [sources = std::move(sources),
          policy = PagePolicy(kPageHtml)](const HttpRequest& request) {
    return Answer(sources, policy, request);
  };
}

}  // namespace ballast
