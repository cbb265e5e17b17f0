#include "server/http/page_guard.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/sha256.h"

namespace ballast {
namespace {

// 'sha256-...' of the text between `begin` and `end` in the page.
std::string SourceHash(absl::string_view page, absl::string_view begin,
                       absl::string_view end) {
  const size_t first = page.find(begin) + begin.size();
  const absl::string_view text = page.substr(first, page.find(end) - first);
  const std::string digest = absl::HexStringToBytes(Sha256Hex(absl::MakeSpan(
      reinterpret_cast<const uint8_t*>(text.data()), text.size())));
  return absl::StrCat("'sha256-", absl::Base64Escape(digest), "'");
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

}  // namespace

HttpResponse PlainAnswer(int status, absl::string_view text) {
  HttpResponse response;
  response.status = status;
  response.body = absl::StrCat(text, "\n");
  return response;
}

std::string PagePolicy(absl::string_view page) {
  return absl::StrCat(
      "Content-Security-Policy: default-src 'none'; connect-src 'self'; "
      "img-src 'self'; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'; script-src ",
      SourceHash(page, "<script>", "</script>"), "; style-src ",
      SourceHash(page, "<style>", "</style>"), "\r\n");
}

std::optional<HttpResponse> RefuseAtDoor(const HttpRequest& request,
                                         bool is_local) {
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse response = PlainAnswer(405, "only GET and HEAD are answered");
    response.headers = "Allow: GET, HEAD\r\n";
    return response;
  }
  if (is_local && request.host.has_value() && !IsLocalName(*request.host)) {
    return PlainAnswer(
        421,
        "this server listens for its own machine; ask it as localhost or by "
        "its address");
  }
  return std::nullopt;
}

}  // namespace ballast
