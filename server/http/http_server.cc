#include "server/http/http_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/log.h"
#include "common/net_address.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

absl::StatusOr<std::string> FindIpv4(const std::string& host) {
  // RFC 6761; a bare container may have no hosts file with this entry.
  if (host == "localhost") return std::string("127.0.0.1");
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failed != 0) {
    return absl::NotFoundError(absl::StrCat(
        "host ", host, " has no IPv4 address: ", gai_strerror(failed)));
  }
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET,
            &reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr,
            text, sizeof(text));
  freeaddrinfo(found);
  return std::string(text);
}

// Resolves a host name: "localhost:9464" to "127.0.0.1:9464".
absl::StatusOr<std::string> Resolve(const std::string& address) {
  const absl::StatusOr<NetAddress> parsed = ParseNetAddress(address);
  if (!parsed.ok() || parsed->is_unix() ||
      parsed->host.find(':') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", address,
                     "; wanted host:port with a name or an IPv4 address"));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::string host, FindIpv4(parsed->host));
  return absl::StrCat(host, ":", parsed->port);
}

std::optional<std::string> HeaderOf(mg_connection* connection,
                                    const char* name) {
  const char* value = mg_get_header(connection, name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

// Splits a query. Its length is bounded by that of a request.
std::map<std::string, std::string> SplitQuery(absl::string_view query) {
  std::map<std::string, std::string> values;
  for (const absl::string_view part : absl::StrSplit(query, '&')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.first.empty()) continue;
    std::string decoded(pair.second.size() + 1, '\0');
    const int length =
        mg_url_decode(pair.second.data(), pair.second.size(), decoded.data(),
                      decoded.size(), /*is_form_url_encoded=*/1);
    decoded.resize(length < 0 ? 0 : length);
    values[std::string(pair.first)] = std::move(decoded);
  }
  return values;
}

int OnLog(const mg_connection* /*connection*/, const char* message) {
  LogWarning("http: ", message);
  return 1;  // civetweb logs nothing itself
}

}  // namespace

int HttpServer::OnRequest(mg_connection* connection) {
  const mg_request_info* info = mg_get_request_info(connection);
  const auto* server = static_cast<const HttpServer*>(info->user_data);
  HttpRequest request;
  request.method = info->request_method;
  if (info->local_uri != nullptr) request.path = info->local_uri;
  if (info->query_string != nullptr) {
    request.query = SplitQuery(info->query_string);
  }
  request.authorization = HeaderOf(connection, "Authorization");
  request.host = HeaderOf(connection, "Host");
  const HttpResponse response = server->handler_(request);
  const std::string head = absl::StrCat(
      "HTTP/1.1 ", response.status, " ",
      mg_get_response_code_text(connection, response.status),
      "\r\nContent-Type: ", response.content_type,
      "\r\nContent-Length: ", response.body.size(),
      "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
      "Referrer-Policy: no-referrer\r\nConnection: close\r\n",
      response.headers, "\r\n");
  mg_write(connection, head.data(), head.size());
  if (request.method != "HEAD") {
    mg_write(connection, response.body.data(), response.body.size());
  }
  return response.status;  // done: nothing else answers
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& address, Handler handler) {
  BALLAST_ASSIGN_OR_RETURN(const std::string where, Resolve(address));
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(handler)));
  const char* options[] = {"listening_ports",
                           where.c_str(),
                           "num_threads",
                           "16",
                           "connection_queue",
                           "32",
                           "listen_backlog",
                           "64",
                           "request_timeout_ms",
                           "3000",
                           "max_request_size",
                           "16384",
                           "enable_keep_alive",
                           "no",
                           "enable_directory_listing",
                           "no",
                           nullptr};
  mg_callbacks callbacks = {};
  callbacks.begin_request = &HttpServer::OnRequest;
  callbacks.log_message = &OnLog;
  mg_init_library(0);
  errno = 0;
  server->context_ = mg_start(&callbacks, server.get(), options);
  if (server->context_ == nullptr) {
    const int reason = errno;
    return absl::UnavailableError(
        absl::StrCat("cannot listen at ", address,
                     reason == 0 ? "; is the address taken?"
                                 : absl::StrCat(": ", std::strerror(reason))));
  }
  mg_server_port port = {};
  if (mg_get_server_ports(server->context_, 1, &port) != 1) {
    return absl::UnavailableError(absl::StrCat("no port at ", address));
  }
  server->address_ =
      absl::StrCat(where.substr(0, where.find(':') + 1), port.port);
  return server;
}

HttpServer::~HttpServer() {
  if (context_ != nullptr) mg_stop(context_);
  mg_exit_library();
}

}  // namespace ballast
