#include "server/http/pages.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/sha256.h"
#include "server/http/page_html.h"

namespace ballast {
namespace {

HttpResponse Plain(int status, absl::string_view text) {
  HttpResponse response;
  response.status = status;
  response.body = absl::StrCat(text, "\n");
  return response;
}

// 'sha256-...' of the text between `begin` and `end` in the page.
std::string SourceHash(absl::string_view page, absl::string_view begin,
                       absl::string_view end) {
  const size_t first = page.find(begin) + begin.size();
  const absl::string_view text = page.substr(first, page.find(end) - first);
  const std::string digest = absl::HexStringToBytes(Sha256Hex(absl::MakeSpan(
      reinterpret_cast<const uint8_t*>(text.data()), text.size())));
  return absl::StrCat("'sha256-", absl::Base64Escape(digest), "'");
}

// Allows the page's own script and style, and nothing from elsewhere.
std::string PolicyOf(absl::string_view page) {
  return absl::StrCat(
      "Content-Security-Policy: default-src 'none'; connect-src 'self'; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
      "script-src ",
      SourceHash(page, "<script>", "</script>"), "; style-src ",
      SourceHash(page, "<style>", "</style>"), "\r\n");
}

// Returns whether `host` is localhost or an address, with or without a port.
bool IsLocalName(absl::string_view host) {
  if (!host.empty() && host.front() == '[') return true;  // IPv6
  host = host.substr(0, host.rfind(':'));
  if (absl::AsciiStrToLower(host) == "localhost") return true;
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isdigit(c) || c == '.';
  });
}

HttpResponse Refuse(const absl::Status& why) {
  const bool unknown = absl::IsUnauthenticated(why);
  HttpResponse response =
      Plain(unknown ? 401 : 403, absl::string_view(why.message()));
  if (unknown) response.headers = "WWW-Authenticate: Bearer\r\n";
  return response;
}

HttpResponse Answer(const PageSources& sources, const std::string& policy,
                    const HttpRequest& request) {
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse response = Plain(405, "only GET and HEAD are answered");
    response.headers = "Allow: GET, HEAD\r\n";
    return response;
  }
  if (sources.is_local && request.host.has_value() &&
      !IsLocalName(*request.host)) {
    return Plain(421,
                 "this server listens for its own machine; ask it as localhost "
                 "or by its address");
  }
  if (request.path == "/") {
    HttpResponse response;
    response.content_type = "text/html; charset=utf-8";
    response.body = kPageHtml;
    response.headers = policy;
    return response;
  }
  const bool metrics = request.path == "/metrics";
  if (!metrics && request.path != "/api/status") {
    return Plain(404, "nothing here; wanted /, /metrics or /api/status");
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
          policy = PolicyOf(kPageHtml)](const HttpRequest& request) {
    return Answer(sources, policy, request);
  };
}

}  // namespace ballast
