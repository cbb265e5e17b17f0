#ifndef BALLAST_SERVER_SECURITY_RELOADING_TLS_H_
#define BALLAST_SERVER_SECURITY_RELOADING_TLS_H_

#include <memory>
#include <string>

#include <grpcpp/security/server_credentials.h>

#include "common/live_value.h"
#include "common/pem_files.h"

namespace ballast {

// The certificate that a server shows to its clients, and the CAs by which it
// verifies theirs. PEM.
struct TlsMaterial {
  TlsIdentity identity;
  std::string client_ca;  // empty: clients show no certificate

  friend bool operator==(const TlsMaterial& a, const TlsMaterial& b) {
    return a.identity.cert == b.identity.cert &&
           a.identity.key == b.identity.key && a.client_ca == b.client_ca;
  }
};
using LiveTlsMaterial = LiveValue<std::shared_ptr<const TlsMaterial>>;

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
