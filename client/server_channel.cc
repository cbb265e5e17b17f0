#include "client/server_channel.h"

#include <arpa/inet.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <netdb.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/channel_security.h"
#include "common/grpc_status.h"
#include "common/net_address.h"
#include "common/without_sigpipe.h"
#include "proto/transport.h"

namespace ballast {
namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* cert) const { X509_free(cert); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(addrinfo* found) const { freeaddrinfo(found); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// Result of the check of the server's certificate.
struct CertificateCheck {
  int error = X509_V_OK;
  std::vector<std::string> names;  // the certificate's
};

std::vector<std::string> GetNames(X509* cert) {
  std::vector<std::string> names;
  auto* all = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(cert, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(all) && i < 8; ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(all, i);
    int type = 0;
    const void* value = GENERAL_NAME_get0_value(name, &type);
    if (type == GEN_DNS) {
      const auto* text = static_cast<const ASN1_STRING*>(value);
      names.emplace_back(
          reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          ASN1_STRING_length(text));
    } else if (type == GEN_IPADD) {
      const auto* bytes = static_cast<const ASN1_OCTET_STRING*>(value);
      const int length = ASN1_STRING_length(bytes);
      char text[INET6_ADDRSTRLEN] = "";
      if (length == 4 || length == 16) {
        inet_ntop(length == 4 ? AF_INET : AF_INET6,
                  ASN1_STRING_get0_data(bytes), text, sizeof(text));
        names.emplace_back(text);
      }
    }
  }
  GENERAL_NAMES_free(all);
  return names;
}

// Notes that the server asked for a client certificate.
int OnAsked(SSL*, void* asked) {
  *static_cast<bool*>(asked) = true;
  return 1;
}

int OnVerify(int ok, X509_STORE_CTX* context) {
  if (ok == 1) return 1;
  const auto* ssl = static_cast<const SSL*>(X509_STORE_CTX_get_ex_data(
      context, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto* check = static_cast<CertificateCheck*>(SSL_get_app_data(ssl));
  check->error = X509_STORE_CTX_get_error(context);
  if (X509* leaf = X509_STORE_CTX_get0_cert(context); leaf != nullptr) {
    check->names = GetNames(leaf);
  }
  return 0;
}

Owned<BIO> Reader(const std::string& pem) {
  return Owned<BIO>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// Errors are ignored: the files were checked when they were loaded.
Owned<SSL_CTX> MakeContext(const ChannelSecurity& security) {
  Owned<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
  if (security.ca.empty()) return context;
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, &OnVerify);
  X509_STORE* store = SSL_CTX_get_cert_store(context.get());
  const Owned<BIO> authorities = Reader(security.ca);
  while (const auto ca = Owned<X509>(
             PEM_read_bio_X509(authorities.get(), nullptr, nullptr, nullptr))) {
    X509_STORE_add_cert(store, ca.get());
  }
  if (!security.cert.empty()) {
    const Owned<BIO> certs = Reader(security.cert);
    const Owned<X509> cert(
        PEM_read_bio_X509(certs.get(), nullptr, nullptr, nullptr));
    SSL_CTX_use_certificate(context.get(), cert.get());
    while (X509* more =
               PEM_read_bio_X509(certs.get(), nullptr, nullptr, nullptr)) {
      SSL_CTX_add_extra_chain_cert(context.get(), more);  // owns it now
    }
    const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(
        Reader(security.key).get(), nullptr, nullptr, nullptr));
    SSL_CTX_use_PrivateKey(context.get(), key.get());
  }
  ERR_clear_error();
  return context;
}

bool Await(int fd, short events, absl::Time deadline) {
  const absl::Duration left = deadline - absl::Now();
  if (left <= absl::ZeroDuration()) return false;
  pollfd polled = {fd, events, 0};
  return poll(&polled, 1,
              static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) > 0;
}

int Connect(const addrinfo& where, absl::Time deadline) {
  const int fd =
      socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (connect(fd, where.ai_addr, where.ai_addrlen) == 0) return fd;
  int error = 0;
  socklen_t length = sizeof(error);
  if (errno == EINPROGRESS && Await(fd, POLLOUT, deadline) &&
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 &&
      error == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

// Repeats a TLS operation until it succeeds (1), fails (0), or time is up (-1).
template <typename Operation>
int Complete(SSL* ssl, absl::Time deadline, Operation operation) {
  while (true) {
    ERR_clear_error();
    const int result = operation();
    if (result > 0) return 1;
    const int error = SSL_get_error(ssl, result);
    short events = 0;
    if (error == SSL_ERROR_WANT_READ) events = POLLIN;
    if (error == SSL_ERROR_WANT_WRITE) events = POLLOUT;
    if (events == 0) return 0;
    if (!Await(SSL_get_fd(ssl), events, deadline)) return -1;
  }
}

absl::Status Failed(absl::string_view what) {
  return absl::UnauthenticatedError(what);
}

absl::Status OfServerCertificate(const CertificateCheck& check,
                                 const std::string& host) {
  switch (check.error) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return Failed(absl::StrCat(
          "the server's certificate is for ",
          check.names.empty() ? "no name" : absl::StrJoin(check.names, ", "),
          ", not for ", host, "; give --tls-server-name if that is right"));
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return Failed("the server's certificate has expired");
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return Failed(
          "the server's certificate is not valid yet; is this machine's clock "
          "right?");
    default:
      return Failed(
          absl::StrCat("the server's certificate is not by a CA of --tls-ca: ",
                       X509_verify_cert_error_string(check.error)));
  }
}

// For a server that asked for a client certificate and then hung up without the
// alert that would say why, as gRPC's servers do.
absl::Status OfClientCertificate(SSL* ssl) {
  X509* const cert = SSL_get_certificate(ssl);
  if (cert == nullptr) {
    return Failed(
        "the server wants a certificate of the client; give --tls-cert and "
        "--tls-key");
  }
  const std::string refused = "the server refuses the client's certificate: ";
  if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0) {
    return Failed(refused + "it has expired");
  }
  const STACK_OF(X509_NAME)* const wanted = SSL_get0_peer_CA_list(ssl);
  for (int i = 0; i < sk_X509_NAME_num(wanted); ++i) {
    if (X509_NAME_cmp(sk_X509_NAME_value(wanted, i),
                      X509_get_issuer_name(cert)) == 0) {
      return Failed(refused +
                    "is it by a CA of the server's security.tls.client_ca, "
                    "valid by the server's clock, and one for clients?");
    }
  }
  return Failed(refused +
                "it is not by a CA of the server's security.tls.client_ca");
}

// Explains OpenSSL's error `reason`, which ended the handshake or the first
// read after it.
absl::Status OfEnd(int reason, bool asked, SSL* ssl) {
  if (reason == SSL_R_WRONG_VERSION_NUMBER ||
      reason == SSL_R_PACKET_LENGTH_TOO_LONG ||
      reason == SSL_R_UNEXPECTED_MESSAGE) {
    return Failed(
        "the server does not use TLS at this address; leave out --tls-ca, or "
        "set "
        "security.tls of the server");
  }
  if (asked) return OfClientCertificate(ssl);
  if (reason <= SSL_AD_REASON_OFFSET) return absl::OkStatus();
  return Failed(absl::StrCat("the server refuses the connection: ",
                             ERR_reason_error_string(ERR_peek_error())));
}

// Finds the TLS fault that keeps a client with `security` from a server, since
// gRPC only reports that it cannot connect. Opens another connection to
// `address` (`host:port`) and tries. Returns UNAUTHENTICATED with the reason
// and what to do: a certificate of another CA, expired or for another host; a
// client certificate that is missing or refused; TLS on one side only. OK:
// there is no TLS fault, or the server is away or does not answer within
// `timeout`. Blocks for at most `timeout`, plus the look-up of the host's name.
absl::Status DiagnoseTls(const std::string& address,
                         const ChannelSecurity& security,
                         absl::Duration timeout) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* addresses = nullptr;
  if (colon == std::string::npos ||
      getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints,
                  &addresses) != 0) {
    return absl::OkStatus();
  }
  const Owned<addrinfo> found(addresses);
  const absl::Time deadline = absl::Now() + timeout;
  const Descriptor descriptor(Connect(*found, deadline));
  if (descriptor.get() < 0) return absl::OkStatus();

  // The server may close at any moment, as when it has no place.
  const WithoutSigpipe without_sigpipe;
  const bool plain = security.ca.empty();
  if (!security.server_name.empty()) host = security.server_name;
  const Owned<SSL_CTX> context = MakeContext(security);
  const Owned<SSL> ssl(SSL_new(context.get()));
  CertificateCheck check;
  SSL_set_app_data(ssl.get(), &check);
  bool asked = false;
  SSL_set_cert_cb(ssl.get(), &OnAsked, &asked);
  SSL_set_fd(ssl.get(), descriptor.get());
  SSL_set_alpn_protos(ssl.get(), reinterpret_cast<const uint8_t*>("\2h2"), 3);
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), host.c_str()) !=
      1) {
    SSL_set1_host(ssl.get(), host.c_str());
    SSL_set_tlsext_host_name(ssl.get(), host.c_str());
  }
  int done =
      Complete(ssl.get(), deadline, [&] { return SSL_connect(ssl.get()); });
  if (plain) {
    // An alert also shows that the server speaks TLS.
    const int reason = ERR_GET_REASON(ERR_peek_error());
    const bool tls = done == 1 || reason > SSL_AD_REASON_OFFSET;
    ERR_clear_error();
    if (!tls) return absl::OkStatus();
    return Failed("the server uses TLS at this address; give --tls-ca");
  }
  if (done == 1) {
    // The server checks our certificate after the handshake.
    char byte;
    done = Complete(ssl.get(), deadline,
                    [&] { return SSL_read(ssl.get(), &byte, 1); });
  }
  absl::Status status;
  if (check.error != X509_V_OK) {
    status = OfServerCertificate(check, host);
  } else if (done == 0) {
    status = OfEnd(ERR_GET_REASON(ERR_peek_error()), asked, ssl.get());
  }
  ERR_clear_error();
  return status;
}

// A step of 131,072 samples takes some 8 MiB.
constexpr int kMaxControlMessage = 256 << 20;
// A chunk and its framing.
constexpr int kMaxPullMessage = static_cast<int>(kMaxChunkBytes) + 1024;

// Longest search for a TLS fault.
constexpr absl::Duration kDiagnosis = absl::Seconds(2);

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ChannelSecurity& security,
                                           int max_message,
                                           const std::string& peer = "") {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(max_message);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // A Pull may be idle for as long as a step takes.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Calls fail while a channel waits to reconnect, so it must not wait longer
  // than their callers do before they retry.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Every client has its own connection, so that ranks in one process do not
  // share one connection's window.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Servers are inside the cluster: a proxy to the outside cannot reach them.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  ChannelSecurity expected = security;
  const auto named = ParseNetAddress(address);
  const bool to_peer = !peer.empty() && named.ok() && !named->is_unix();
  if (to_peer && !security.ca.empty() && expected.server_name.empty()) {
    expected.server_name = named->host;
  }
  SetSecurityArguments(expected, &arguments);
  const auto credentials = ChannelCredentialsFor(security, address);
  return grpc::CreateCustomChannel(
      to_peer ? peer : address,
      credentials.ok() ? *credentials : grpc::InsecureChannelCredentials(),
      arguments);
}

absl::Status CheckAddress(const std::string& address,
                          const ChannelSecurity& security) {
  BALLAST_RETURN_IF_ERROR(CheckServerAddress(address));
  return ChannelCredentialsFor(security, address).status();
}

}  // namespace

ServerChannel::ServerChannel(const std::string& address,
                             const ChannelSecurity& security)
    : address_(address),
      security_(security),
      // gRPC's own message would only say that there is no channel.
      usable_(CheckAddress(address, security)),
      channel_(MakeChannel(address, security, kMaxControlMessage)) {}

bool ServerChannel::Answer::AwaitFor(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  MutexLock lock(&mutex);
  while (!status.has_value()) {
    const absl::Duration left = end - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    changed.WaitFor(&mutex, absl::ToChronoNanoseconds(left));
  }
  return true;
}

void ServerChannel::Prepare(const CallOptions& options,
                            grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() +
                        absl::ToChronoNanoseconds(options.deadline));
  context->set_wait_for_ready(options.wait_for_server);
}

absl::Status ServerChannel::Explain(const CallOptions& options,
                                    const grpc::Status& status) const {
  absl::Status result = FromGrpcStatus(status);
  if (!options.explain) return Named(options.name, result);
  if (absl::IsCancelled(result)) {
    // Unary calls are never cancelled here: the server is shutting down.
    result = absl::UnavailableError("the server is shutting down");
  } else if (absl::IsUnavailable(result)) {
    absl::Status tls;
    if (UnixPath(address_).empty()) {
      // The next handshake reads the files again.
      ChannelSecurity now = security_;
      absl::Status read;
      if (now.current_tls != nullptr) read = ReadTls(now.files, &now);
      tls = DiagnoseTls(address_, now, kDiagnosis);
      if (!tls.ok() && !read.ok()) {
        tls = Failed(absl::StrCat(tls.message(), "; ", read.message()));
      }
    }
    // Otherwise nothing listens at the address, or the server is going away.
    result = !tls.ok() ? tls
                       : absl::UnavailableError(absl::StrCat(
                             result.message(),
                             "; does `ballast-server serve` run there?"));
  }
  return Named(options.name, result);
}

absl::Status ServerChannel::Named(absl::string_view call,
                                  const absl::Status& status) const {
  return Annotate(status, absl::StrCat("server ", address_, ": ", call));
}

std::shared_ptr<grpc::Channel> MakePullChannel(const std::string& address,
                                               const ChannelSecurity& security,
                                               const std::string& peer) {
  return MakeChannel(address, security, kMaxPullMessage, peer);
}

std::vector<std::string> SplitServers(absl::string_view list) {
  return absl::StrSplit(list, ',');
}

absl::Status CheckServerAddress(absl::string_view address) {
  const absl::StatusOr<NetAddress> parsed = ParseNetAddress(address);
  if (parsed.ok() && (parsed->is_unix() || parsed->port != 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("server address \"", address, "\": ",
                   parsed.ok() ? "wanted a port of 1 to 65535"
                               : std::string(parsed.status().message())));
}

}  // namespace ballast
