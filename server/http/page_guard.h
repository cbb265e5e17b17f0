#ifndef BALLAST_SERVER_HTTP_PAGE_GUARD_H_
#define BALLAST_SERVER_HTTP_PAGE_GUARD_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/http/http_server.h"

namespace ballast {

// An answer of one line of text.
HttpResponse PlainAnswer(int status, absl::string_view text);

// The header Content-Security-Policy that allows a page its own script, style,
// data and pictures, and nothing from elsewhere. `page` holds one <script> and
// one <style>.
std::string PagePolicy(absl::string_view page);

// The answer to a request that no page of ours takes: 405 for methods other
// than GET and HEAD; 421 if `is_local` and the request's host is neither a
// numeric address nor localhost, so that no page of another site can read ours
// under a name of its own (DNS rebinding). nullopt: it may pass.
std::optional<HttpResponse> RefuseAtDoor(const HttpRequest& request,
                                         bool is_local);

}  // namespace ballast

#endif  // BALLAST_SERVER_HTTP_PAGE_GUARD_H_
