#ifndef BALLAST_SERVER_HTTP_HTTP_SERVER_H_
#define BALLAST_SERVER_HTTP_HTTP_SERVER_H_

#include <functional>
#include <map>
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
  // Behind the path's question mark: "a=1&b=x%20y" as {"a": "1", "b": "x y"}.
  // Of a name given twice, the last value.
  std::map<std::string, std::string> query;
  std::optional<std::string> authorization;
  std::optional<std::string> host;  // as the client wrote it
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // Headers besides those of every answer, each "Name: value\r\n".
  std::string headers;
};

// Serves small answers over HTTP/1.1 to browsers and scrapers, one request per
// connection. Uses civetweb, set up to serve no file and run no program.
// Bounds: 16 requests being handled, 32 connections that wait for one of these,
// and 64 held by the system; 16 KiB of a request before its body, which is not
// read; 3 seconds to send it, so a client that connects and stays silent takes
// one of the 16 for that long. Thread-safe.
class HttpServer {
 public:
  // Answers a request. Called on several threads at once. Must not throw.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Listens at `address`, `host:port` with a name or an IPv4 address; port 0
  // lets the system choose. May ask the name service. Errors: INVALID_ARGUMENT
  // (no such address, or one of IPv6), NOT_FOUND (no such host), UNAVAILABLE
  // (the system refuses, or the address is taken); each names the address.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& address, Handler handler);

  // Ends the requests being handled and waits for them.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The address in use: IPv4, with the port that the system chose.
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
