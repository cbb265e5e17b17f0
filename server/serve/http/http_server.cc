#include "server/serve/http/http_server.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/ssl/stream_base.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/stream_traits.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/log.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "server/serve/security/tls_context.h"

namespace ballast {

namespace {

std::optional<std::string> Decode(absl::string_view text, bool plus_is_blank) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (text.size() - i < 3 || !absl::ascii_isxdigit(text[i + 1]) ||
          !absl::ascii_isxdigit(text[i + 2])) {
        return std::nullopt;
      }
      c = absl::HexStringToBytes(text.substr(i + 1, 2))[0];
      i += 2;
    } else if (c == '+' && plus_is_blank) {
      c = ' ';
    }
    if (c == '\0') return std::nullopt;
    decoded.push_back(c);
  }
  return decoded;
}

}  // namespace

std::optional<RequestTarget> ParseRequestTarget(absl::string_view text) {
  if (text.empty() || text.front() != '/') return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits('?', 1));
  std::optional<std::string> path = Decode(halves.first, false);
  if (!path.has_value()) return std::nullopt;
  RequestTarget target;
  target.path = *std::move(path);
  for (const absl::string_view part : absl::StrSplit(halves.second, '&')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.first.empty()) continue;
    target.query[std::string(pair.first)] =
        Decode(pair.second, true).value_or("");
  }
  return target;
}

namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace net = boost::asio;
using Error = boost::system::error_code;

constexpr std::chrono::seconds kToAsk(3);      // handshake and request together
constexpr std::chrono::seconds kToAnswer(30);  // to take the answer
constexpr uint32_t kMaxRequestBytes = 16 << 10;

absl::string_view ToView(boost::string_view text) {
  return absl::string_view(text.data(), text.size());
}

std::string GetHead(const HttpResponse& response) {
  return absl::StrCat(
      "HTTP/1.1 ", response.status, " ",
      ToView(http::obsolete_reason(http::int_to_status(response.status))),
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

std::optional<std::string> GetHeader(const Parser::value_type& message,
                                     http::field name) {
  const auto found = message.find(name);
  if (found == message.end()) return std::nullopt;
  return std::string(ToView(found->value()));
}

HttpResponse Answer(const Parser::value_type& message,
                    const HttpServer::Handler& handler) {
  std::optional<RequestTarget> target =
      ParseRequestTarget(ToView(message.target()));
  if (!target.has_value()) {
    return Fault(400, "the path cannot be decoded; wanted /PATH?NAME=VALUE");
  }
  // RFC 9112, 3.2: a proxy in front of this server may use another one than we
  // do.
  for (const http::field name :
       {http::field::host, http::field::authorization}) {
    if (message.count(name) <= 1) continue;
    return Fault(400,
                 absl::StrCat("the request has more than one header ",
                              ToView(http::to_string(name)), "; wanted one"));
  }
  HttpRequest request;
  request.method = std::string(ToView(message.method_string()));
  request.path = std::move(target->path);
  request.query = std::move(target->query);
  request.authorization = GetHeader(message, http::field::authorization);
  request.host = GetHeader(message, http::field::host);
  return handler(request);
}

// A connection, to whoever makes room for others.
class Guest {
 public:
  virtual ~Guest() = default;
  // Whether the client's request has come.
  bool has_asked() const { return has_asked_; }
  // Closes the connection, unless its request has come meanwhile. Thread-safe.
  virtual void GiveWay() = 0;

 protected:
  std::atomic<bool> has_asked_{false};
};

// One connection. Every operation holds a reference to it, and there is one at
// a time. The stream ends operations when their time is up.
template <typename Stream>
class Connection : public Guest,
                   public std::enable_shared_from_this<Connection<Stream>> {
 public:
  static constexpr bool kTls = !std::is_same_v<Stream, beast::tcp_stream>;

  template <typename... Context>
  Connection(net::ip::tcp::socket socket, const HttpServer::Handler* handler,
             std::shared_ptr<void> place, Context&... context)
      : place_(std::move(place)),
        handler_(handler),
        stream_(std::move(socket), context...) {
    parser_.header_limit(kMaxRequestBytes);
  }

  void GiveWay() override {
    net::post(Tcp().get_executor(), [self = this->shared_from_this()] {
      if (!self->has_asked()) self->Tcp().close();
    });
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
    if (error) return;  // the client is gone, or out of time
    has_asked_ = true;
    // The handler may take longer than the client's time limit for its request.
    Tcp().expires_never();
    const auto& message = parser_.get();
    Write(stream_, Answer(message, *handler_),
          message.method() != http::verb::head);
  }

  template <typename To>
  void Write(To& to, const HttpResponse& response, bool with_body) {
    answer_ = GetHead(response);
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
  beast::flat_buffer buffer_{kMaxRequestBytes};
  Parser parser_;
  std::string answer_;
};

// Starts the connection on the socket's executor.
template <typename Stream>
std::weak_ptr<Guest> Begin(std::shared_ptr<Connection<Stream>> connection,
                           const net::ip::tcp::socket::executor_type& executor) {
  net::dispatch(executor, [connection] { connection->Start(); });
  return connection;
}

// Answers one request at `socket` by `handler` and closes the connection,
// within the bounds of HttpServer. With `tls`, which may be null, over TLS; a
// client that sends plain HTTP then gets an answer that says so. Returns at
// once: the socket's executor does the work, one piece after the other.
// `handler` is not owned. Releases `place` once the connection is closed.
std::weak_ptr<Guest> ServeConnection(net::ip::tcp::socket socket,
                     std::shared_ptr<net::ssl::context> tls,
                     const HttpServer::Handler* handler,
                     std::shared_ptr<void> place) {
  const auto executor = socket.get_executor();
  if (tls == nullptr) {
    return Begin(std::make_shared<Connection<beast::tcp_stream>>(
                     std::move(socket), handler, std::move(place)),
                 executor);
  }
  // OpenSSL's object for the connection holds a reference to the context.
  return Begin(std::make_shared<Connection<TlsStream>>(
                   std::move(socket), handler, std::move(place), *tls),
               executor);
}

using tcp = net::ip::tcp;
using Error = boost::system::error_code;

constexpr int kThreads = 16;
constexpr int kMaxConnections = 48;
constexpr int kBacklog = 64;
// Pause after a failed attempt to accept.
constexpr std::chrono::milliseconds kAfterFault(100);

absl::StatusOr<tcp::endpoint> Resolve(const std::string& address) {
  const absl::StatusOr<NetAddress> parsed = ParseNetAddress(address);
  if (!parsed.ok() || parsed->is_unix()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found ", address,
        "; wanted host:port with a name, an IPv4 address or an IPv6 address "
        "in brackets"));
  }
  // RFC 6761; a bare container may have no hosts file with this entry.
  const std::string host =
      parsed->host == "localhost" ? "127.0.0.1" : parsed->host;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failed != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot listen at ", address, ": host ", host,
                     " has no address: ", gai_strerror(failed),
                     "; give one of this machine's addresses or names"));
  }
  const addrinfo* chosen = found;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_family != AF_INET) continue;
    chosen = one;
    break;
  }
  tcp::endpoint endpoint;
  endpoint.resize(chosen->ai_addrlen);
  std::memcpy(endpoint.data(), chosen->ai_addr, chosen->ai_addrlen);
  endpoint.port(parsed->port);
  freeaddrinfo(found);
  return endpoint;
}

absl::Status Listen(const tcp::endpoint& endpoint, tcp::acceptor* acceptor) {
  Error error;
  acceptor->open(endpoint.protocol(), error);
  // A restarted server takes its port again at once. If the system chooses the
  // port, this would let it choose one at which another socket is about to
  // listen.
  if (!error && endpoint.port() != 0) {
    acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  }
  if (!error && endpoint.address().is_v6()) {
    acceptor->set_option(net::ip::v6_only(false), error);
  }
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(kBacklog, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      error.message(), error == net::error::address_in_use
                           ? "; by another server? Port 0 takes a free one"
                           : ""));
}

std::string GetText(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return endpoint.address().is_v6()
             ? absl::StrCat("[", host, "]:", endpoint.port())
             : absl::StrCat(host, ":", endpoint.port());
}

}  // namespace

// The threads and the state that they share.
struct HttpServer::Core {
  Core(Handler answer, std::shared_ptr<const LiveTlsMaterial> material)
      : handler(std::move(answer)), live_tls(std::move(material)) {}

  ~Core() {
    stopping = true;
    io.stop();
    for (std::thread& thread : threads) thread.join();
  }

  void Accept() {
    acceptor.async_accept(
        net::make_strand(io),
        [this](Error error, tcp::socket socket) { OnAccept(error, &socket); });
  }

  void OnAccept(const Error& error, tcp::socket* socket) {
    if (error == net::error::operation_aborted) return;
    if (error) {
      // For example, the process has no descriptors left: waits until some are
      // closed.
      pause.expires_after(kAfterFault);
      pause.async_wait([this](Error ended) {
        if (!ended) Accept();
      });
      return;
    }
    const absl::Status usable = RenewTls();
    if (!usable.ok()) {
      LogError("http: ", usable.message(), "; connections are closed");
    } else {
      ++open;
      if (asking.size() >= 2 * kMaxConnections) {
        std::erase_if(asking, [](const auto& one) { return one.expired(); });
      }
      asking.push_back(
          ServeConnection(std::move(*socket), tls, &handler, Place()));
    }
    if (open < kMaxConnections) return Accept();
    // The oldest that has not asked makes room, so that clients who only
    // connect keep nobody away for the time that they have to ask.
    while (!asking.empty()) {
      const std::shared_ptr<Guest> oldest = asking.front().lock();
      asking.pop_front();
      if (oldest != nullptr && !oldest->has_asked()) return oldest->GiveWay();
    }
  }

  // Released when its connection is closed.
  std::shared_ptr<void> Place() {
    return std::shared_ptr<void>(nullptr, [this](void*) {
      if (stopping) return;
      net::post(acceptor.get_executor(), [this] {
        if (open-- == kMaxConnections) Accept();
      });
    });
  }

  // Makes a new TLS context if the material has changed.
  absl::Status RenewTls() {
    if (live_tls == nullptr) return absl::OkStatus();
    std::shared_ptr<const TlsMaterial> now = live_tls->Get();
    if (now == tls_material) return absl::OkStatus();
    BALLAST_ASSIGN_OR_RETURN(tls, MakeTlsContext(*now, TlsProtocol::kHttp1));
    tls_material = std::move(now);
    return absl::OkStatus();
  }

  const Handler handler;
  const std::shared_ptr<const LiveTlsMaterial> live_tls;  // null: no TLS
  std::atomic<bool> stopping{false};
  // Connections hold the members above; open connections end with `io`.
  net::io_context io{kThreads};
  // The rest belongs to the acceptor's strand.
  tcp::acceptor acceptor{net::make_strand(io)};
  net::steady_timer pause{acceptor.get_executor()};
  std::shared_ptr<const TlsMaterial> tls_material;  // of `tls`
  std::shared_ptr<net::ssl::context> tls;
  int open = 0;  // connections
  // Those that had not asked when they came, the oldest first.
  std::deque<std::weak_ptr<Guest>> asking;
  std::vector<std::thread> threads;
};

HttpServer::HttpServer(std::unique_ptr<Core> core, std::string address,
                       const char* scheme)
    : core_(std::move(core)), address_(std::move(address)), scheme_(scheme) {}

HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& address, Handler handler,
    std::shared_ptr<const LiveTlsMaterial> tls) {
  BALLAST_ASSIGN_OR_RETURN(const tcp::endpoint wanted, Resolve(address));
  const char* const scheme = tls == nullptr ? "http" : "https";
  auto core = std::make_unique<Core>(std::move(handler), std::move(tls));
  BALLAST_RETURN_IF_ERROR(core->RenewTls());
  const absl::Status listening = Listen(wanted, &core->acceptor);
  if (!listening.ok()) {
    return Annotate(listening, absl::StrCat("cannot listen at ", address));
  }
  Error error;
  const tcp::endpoint used = core->acceptor.local_endpoint(error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("no port at ", address, ": ", error.message()));
  }
  core->Accept();
  BALLAST_RETURN_IF_ERROR(AddThreads(
      absl::StrCat("serve HTTP at ", address), kThreads,
      [io = &core->io](size_t) { io->run(); }, &core->threads));
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::move(core), GetText(used), scheme));
}

}  // namespace ballast
