#ifndef BALLAST_SERVER_SERVE_HTTP_HTTP_SERVER_H_
#define BALLAST_SERVER_SERVE_HTTP_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/serve/security/server_security.h"

namespace ballast {

// An HTTP request target, from the request's first line (RFC 3986).
struct RequestTarget {
  std::string path;  // decoded: "/a b"
  // Decoded. If a name is given twice, its last value. A parameter without a
  // name is left out, and one that cannot be decoded is empty.
  std::map<std::string, std::string> query;
};

// Parses "/a%20b?x=1&y=2". In the query, a plus is a blank. nullopt: it does
// not begin with a slash, or has a percent sign without two hexadecimal digits
// in its path, or a zero byte. Pure.
std::optional<RequestTarget> ParseRequestTarget(absl::string_view text);

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // "/metrics": decoded, without its query
  // The query after the path's question mark: "a=1&b=x%20y" as {"a": "1", "b":
  // "x y"}. If a name is given twice, its last value.
  std::map<std::string, std::string> query;
  std::optional<std::string> authorization;
  std::optional<std::string> host;  // as the client wrote it
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // Headers in addition to the headers of every answer, each "Name: value\r\n".
  std::string headers;
};

// Serves small answers over HTTP/1.1 to browsers and scrapers, one request per
// connection. Uses Boost.Beast (docs/decisions/0047). Bounds: 48 connections at
// a time, of which 16 are being handled, and 64 queued by the system; beyond
// them the oldest that has not asked is closed; 16 KiB of a request before its
// body, which is not read; 3 seconds from the connection to the request's last
// byte, whatever the client does meanwhile, and 30 to take the answer.
// Thread-safe.
class HttpServer {
 public:
  // Answers a request. Called on several threads at once. Must not throw.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Listens at `address`, `host:port` with a name, an IPv4 address or an IPv6
  // address in brackets; `[::]` accepts IPv4, too. If a name has both, the IPv4
  // address. Port 0 lets the system choose. May ask the name service. With
  // `tls`, over TLS: every connection uses the content of `tls` at its start.
  // Errors: INVALID_ARGUMENT (no such address; OpenSSL refuses `tls`),
  // NOT_FOUND (no such host), UNAVAILABLE (the system refuses, or the address
  // is taken), RESOURCE_EXHAUSTED (no threads); each except the error of `tls`
  // names the address.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& address, Handler handler,
      std::shared_ptr<const LiveTlsMaterial> tls = nullptr);

  // Closes all connections, and waits for the requests being handled.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The address in use, numeric, with the port that the system chose:
  // "127.0.0.1:9464", "[::1]:9464".
  const std::string& address() const { return address_; }

  // "http" or "https".
  const char* scheme() const { return scheme_; }

 private:
  struct Core;
  HttpServer(std::unique_ptr<Core> core, std::string address,
             const char* scheme);

  const std::unique_ptr<Core> core_;
  const std::string address_;
  const char* const scheme_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_HTTP_HTTP_SERVER_H_
