#ifndef BALLAST_SERVER_HTTP_TLS_CONTEXT_H_
#define BALLAST_SERVER_HTTP_TLS_CONTEXT_H_

#include <memory>

#include <boost/asio/ssl/context.hpp>

#include "absl/status/statusor.h"
#include "server/security/tls_material.h"

namespace ballast {

// OpenSSL's context for connections that are accepted with `material`: TLS 1.2
// or later; with a client_ca, clients show a certificate by one of its
// authorities. Sessions are not resumed, so that each connection is checked
// against the material of its time. Errors: INVALID_ARGUMENT (OpenSSL refuses
// the material, which ReadTlsIdentity prevents).
absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> MakeTlsContext(
    const TlsMaterial& material);

}  // namespace ballast

#endif  // BALLAST_SERVER_HTTP_TLS_CONTEXT_H_
