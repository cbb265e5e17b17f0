#include "server/http/http_connection.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/ssl/stream_base.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/stream_traits.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/http/request_target.h"

namespace ballast {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace net = boost::asio;
using Error = boost::system::error_code;

constexpr std::chrono::seconds kToAsk(3);      // handshake and request together
constexpr std::chrono::seconds kToAnswer(30);  // to take the answer
constexpr uint32_t kMostRequestBytes = 16 << 10;

absl::string_view ViewOf(boost::string_view text) {
  return absl::string_view(text.data(), text.size());
}

std::string HeadOf(const HttpResponse& response) {
  return absl::StrCat(
      "HTTP/1.1 ", response.status, " ",
      ViewOf(http::obsolete_reason(http::int_to_status(response.status))),
      "\r\nContent-Type: ", response.content_type,
      "\r\nContent-Length: ", response.body.size(),
      "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
      "Referrer-Policy: no-referrer\r\nConnection: close\r\n",
      response.headers, "\r\n");
}

HttpResponse Fault(int status, absl::string_view why) {
  HttpResponse response;
  response.status = status;
  response.body = absl::StrCat(why, "\n");
  return response;
}

using Parser = http::request_parser<http::empty_body>;
// Not beast::ssl_stream: in 1.74 it ends a write early, and without an error,
// where an empty buffer comes before a large one, as within async_write.
using TlsStream = net::ssl::stream<beast::tcp_stream>;

std::optional<std::string> HeaderOf(const Parser::value_type& message,
                                    http::field name) {
  const auto found = message.find(name);
  if (found == message.end()) return std::nullopt;
  return std::string(ViewOf(found->value()));
}

HttpResponse Answer(const Parser::value_type& message,
                    const HttpServer::Handler& handler) {
  std::optional<RequestTarget> target =
      ParseRequestTarget(ViewOf(message.target()));
  if (!target.has_value()) {
    return Fault(400, "the path cannot be decoded; wanted /PATH?NAME=VALUE");
  }
  // RFC 9112, 3.2: a proxy before this server may heed another one than we do.
  for (const http::field name :
       {http::field::host, http::field::authorization}) {
    if (message.count(name) <= 1) continue;
    return Fault(400,
                 absl::StrCat("the request has more than one header ",
                              ViewOf(http::to_string(name)), "; wanted one"));
  }
  HttpRequest request;
  request.method = std::string(ViewOf(message.method_string()));
  request.path = std::move(target->path);
  request.query = std::move(target->query);
  request.authorization = HeaderOf(message, http::field::authorization);
  request.host = HeaderOf(message, http::field::host);
  return handler(request);
}

// One connection. Every operation holds a reference to it, and there is one at
// a time; the stream ends them when time is up.
template <typename Stream>
class Connection : public std::enable_shared_from_this<Connection<Stream>> {
 public:
  static constexpr bool kTls = !std::is_same_v<Stream, beast::tcp_stream>;

  template <typename... Context>
  Connection(net::ip::tcp::socket socket, const HttpServer::Handler* handler,
             std::shared_ptr<void> place, Context&... context)
      : place_(std::move(place)),
        handler_(handler),
        stream_(std::move(socket), context...) {
    parser_.header_limit(kMostRequestBytes);
  }

  void Start() {
    Tcp().expires_after(kToAsk);
    if constexpr (kTls) {
      stream_.async_handshake(net::ssl::stream_base::server,
                              [self = this->shared_from_this()](Error error) {
                                self->OnHandshake(error);
                              });
    } else {
      ReadRequest();
    }
  }

 private:
  beast::tcp_stream& Tcp() { return beast::get_lowest_layer(stream_); }

  void OnHandshake(const Error& error) {
    if (!error) return ReadRequest();
    if (error.category() == net::error::get_ssl_category() &&
        ERR_GET_REASON(static_cast<unsigned long>(error.value())) ==
            SSL_R_HTTP_REQUEST) {
      Write(Tcp(),
            Fault(400, "this address speaks HTTPS; ask for https:// instead"),
            /*with_body=*/true);
    }
  }

  void ReadRequest() {
    http::async_read_header(
        stream_, buffer_, parser_,
        [self = this->shared_from_this()](Error error, size_t) {
          self->OnRequest(error);
        });
  }

  void OnRequest(const Error& error) {
    if (error == http::error::header_limit ||
        error == http::error::buffer_overflow) {
      return Write(stream_, Fault(431, "the request's headers exceed 16 KiB"),
                   true);
    }
    const bool unreadable =
        error.category() == make_error_code(http::error::bad_method).category();
    if (unreadable && error != http::error::end_of_stream &&
        error != http::error::partial_message) {
      return Write(stream_, Fault(400, "this is no request of HTTP/1.1"), true);
    }
    if (error) return;  // gone, or out of time
    // The handler may take longer than a client had to ask.
    Tcp().expires_never();
    const auto& message = parser_.get();
    Write(stream_, Answer(message, *handler_),
          message.method() != http::verb::head);
  }

  template <typename To>
  void Write(To& to, const HttpResponse& response, bool with_body) {
    answer_ = HeadOf(response);
    if (with_body) answer_ += response.body;
    Tcp().expires_after(kToAnswer);
    net::async_write(to, net::buffer(answer_),
                     [self = this->shared_from_this()](Error error, size_t) {
                       if (!error) self->Close();
                     });
  }

  void Close() {
    if constexpr (kTls) {
      Tcp().expires_after(kToAsk);
      stream_.async_shutdown(
          [self = this->shared_from_this()](Error) { self->CloseTcp(); });
    } else {
      CloseTcp();
    }
  }

  void CloseTcp() {
    Error ignored;
    Tcp().socket().shutdown(net::ip::tcp::socket::shutdown_send, ignored);
  }

  const std::shared_ptr<void> place_;  // released last
  const HttpServer::Handler* const handler_;
  Stream stream_;
  beast::flat_buffer buffer_{kMostRequestBytes};
  Parser parser_;
  std::string answer_;
};

// Starts it where the socket's other work is done.
template <typename Stream>
void Begin(std::shared_ptr<Connection<Stream>> connection,
           const net::ip::tcp::socket::executor_type& executor) {
  net::dispatch(executor, [connection] { connection->Start(); });
}

}  // namespace

void ServeConnection(net::ip::tcp::socket socket,
                     std::shared_ptr<net::ssl::context> tls,
                     const HttpServer::Handler* handler,
                     std::shared_ptr<void> place) {
  const auto executor = socket.get_executor();
  if (tls == nullptr) {
    Begin(std::make_shared<Connection<beast::tcp_stream>>(
              std::move(socket), handler, std::move(place)),
          executor);
    return;
  }
  // OpenSSL's object for the connection holds a reference to the context.
  Begin(std::make_shared<Connection<TlsStream>>(std::move(socket), handler,
                                                std::move(place), *tls),
        executor);
}

}  // namespace ballast
