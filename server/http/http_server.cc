#include "server/http/http_server.h"

#include <netdb.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <openssl/ssl.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/log.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "server/http/http_connection.h"
#include "server/security/tls_material.h"

namespace ballast {
namespace {

namespace ssl = boost::asio::ssl;

absl::Status Refused(absl::string_view what,
                     const boost::system::error_code& error) {
  return absl::InvalidArgumentError(
      absl::StrCat("TLS refuses ", what, ": ", error.message()));
}

// OpenSSL's context for connections that are accepted with `material`: TLS 1.2
// or later; with a client_ca, clients show a certificate by one of its
// authorities. Sessions are not resumed, so that each connection is checked
// against the material of its time. Errors: INVALID_ARGUMENT (OpenSSL refuses
// the material, which ReadTlsIdentity prevents).
absl::StatusOr<std::shared_ptr<ssl::context>> MakeTlsContext(
    const TlsMaterial& material) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  boost::system::error_code error;
  context->use_certificate_chain(boost::asio::buffer(material.identity.cert),
                                 error);
  if (error) return Refused("the certificate", error);
  context->use_private_key(boost::asio::buffer(material.identity.key),
                           ssl::context::pem, error);
  if (error) return Refused("the key", error);
  if (material.client_ca.empty()) return context;
  context->add_certificate_authority(boost::asio::buffer(material.client_ca),
                                     error);
  if (!error) {
    context->set_verify_mode(
        ssl::verify_peer | ssl::verify_fail_if_no_peer_cert, error);
  }
  if (error) return Refused("client_ca", error);
  return context;
}

namespace net = boost::asio;
using tcp = net::ip::tcp;
using Error = boost::system::error_code;

constexpr int kThreads = 16;
constexpr int kMostConnections = 48;
constexpr int kBacklog = 64;
// Until the next attempt to accept, after one that failed.
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
  // A restarted server takes its port again at once. Where the system chooses,
  // this would let it choose one that another socket is about to listen at.
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

std::string TextOf(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return endpoint.address().is_v6()
             ? absl::StrCat("[", host, "]:", endpoint.port())
             : absl::StrCat(host, ":", endpoint.port());
}

}  // namespace

// The threads and what they work on.
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
      // Such as a process without descriptors: waits for some to be closed.
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
      ServeConnection(std::move(*socket), tls, &handler, Place());
    }
    if (open < kMostConnections) Accept();
  }

  // Is released when its connection is closed.
  std::shared_ptr<void> Place() {
    return std::shared_ptr<void>(nullptr, [this](void*) {
      if (stopping) return;
      net::post(acceptor.get_executor(), [this] {
        if (open-- == kMostConnections) Accept();
      });
    });
  }

  // Follows the material if it has changed.
  absl::Status RenewTls() {
    if (live_tls == nullptr) return absl::OkStatus();
    std::shared_ptr<const TlsMaterial> now = live_tls->Get();
    if (now == tls_material) return absl::OkStatus();
    BALLAST_ASSIGN_OR_RETURN(tls, MakeTlsContext(*now));
    tls_material = std::move(now);
    return absl::OkStatus();
  }

  const Handler handler;
  const std::shared_ptr<const LiveTlsMaterial> live_tls;  // null: no TLS
  std::atomic<bool> stopping{false};
  // Connections hold what is above; those left end with it.
  net::io_context io{kThreads};
  // The rest belongs to the acceptor's strand.
  tcp::acceptor acceptor{net::make_strand(io)};
  net::steady_timer pause{acceptor.get_executor()};
  std::shared_ptr<const TlsMaterial> tls_material;  // of `tls`
  std::shared_ptr<net::ssl::context> tls;
  int open = 0;  // connections
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
  try {
    for (int i = 0; i < kThreads; ++i) {
      core->threads.emplace_back([io = &core->io] { io->run(); });
    }
  } catch (const std::system_error& fault) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no threads to serve HTTP at ", address, ": ", fault.what(),
        "; raise the limit of processes (ulimit -u)"));
  }
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::move(core), TextOf(used), scheme));
}

}  // namespace ballast
