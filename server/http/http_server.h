#ifndef BALLAST_SERVER_HTTP_HTTP_SERVER_H_
#define BALLAST_SERVER_HTTP_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

struct mg_connection;
struct mg_context;

namespace ballast {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // "/metrics": decoded, without its query
  std::optional<std::string> authorization;
  std::optional<std::string> host;  // as the client wrote it
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // Beside those that every answer has: "Name: value\r\n" each.
  std::string headers;
};

// Small answers over HTTP/1.1 for browsers and scrapers, one request a
// connection: civetweb, which serves no file and runs no program. Bounds: 16
// requests at work, 32 connections that wait for one of them and 64 that the
// system holds, 16 KiB of a request before its body, which is not read, and 3
// seconds to send it: who connects and says nothing holds one of the 16 for so
// long. Thread-safe.
class HttpServer {
 public:
  // Answers a request; on several threads at once. Must not throw.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Listens at `address`, `host:port` with a name or an IPv4 address; port 0
  // lets the system choose. May ask the name service. Errors: INVALID_ARGUMENT
  // (no such address, or one of IPv6), NOT_FOUND (no such host), UNAVAILABLE
  // (the system refuses, or the address is taken); each names serve.http.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& address, Handler handler);

  // Ends what is at work and waits for it.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Where it listens: an IPv4 address, and the port that the system chose.
  const std::string& address() const { return address_; }

 private:
  explicit HttpServer(Handler handler) : handler_(std::move(handler)) {}
  static int OnRequest(mg_connection* connection);

  const Handler handler_;
  std::string address_;
  mg_context* context_ = nullptr;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_HTTP_HTTP_SERVER_H_
