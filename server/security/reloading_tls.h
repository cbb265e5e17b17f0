#ifndef BALLAST_SERVER_SECURITY_RELOADING_TLS_H_
#define BALLAST_SERVER_SECURITY_RELOADING_TLS_H_

#include <memory>

#include <grpcpp/security/server_credentials.h>

#include "server/security/tls_material.h"

namespace ballast {

// Like grpc::SslServerCredentials, but every handshake uses the content of
// `material` at its start; existing connections are unaffected. Whether clients
// must show a certificate is decided once, here: whether `material` holds a
// client_ca now. If the material cannot be used by TLS, which ReadTlsIdentity
// prevents, the previous one stays in use, and gRPC logs it.
//
// Only gRPC's C interface allows this (the fetcher of grpc_security.h). gRPC's
// file watcher in C++ accepts a key that belongs to another certificate and
// then refuses everyone. See docs/decisions/0013.
//
// SetAuthMetadataProcessor: the processor must not block, and is given no
// AuthContext.
std::shared_ptr<grpc::ServerCredentials> ReloadingTlsCredentials(
    std::shared_ptr<const LiveTlsMaterial> material);

}  // namespace ballast

#endif  // BALLAST_SERVER_SECURITY_RELOADING_TLS_H_
