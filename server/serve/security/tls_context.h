#ifndef BALLAST_SERVER_SERVE_SECURITY_TLS_CONTEXT_H_
#define BALLAST_SERVER_SERVE_SECURITY_TLS_CONTEXT_H_

#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "absl/status/statusor.h"
#include "server/serve/security/server_security.h"

namespace ballast {

// What clients agree on within TLS (ALPN).
enum class TlsProtocol { kHttp1, kHttp2 };

// OpenSSL's context for connections that are accepted with `material`: TLS 1.2
// or later; with a client_ca, clients must show a certificate of one of its
// authorities. Sessions are not resumed, so that each connection is checked
// against the material of its time. A client that offers protocols, but not
// HTTP/2 for kHttp2, is refused. Errors: INVALID_ARGUMENT (OpenSSL refuses the
// material, which ReadTlsIdentity prevents).
absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> MakeTlsContext(
    const TlsMaterial& material, TlsProtocol protocol);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SECURITY_TLS_CONTEXT_H_
