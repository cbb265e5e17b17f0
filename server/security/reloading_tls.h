#ifndef BALLAST_SERVER_SECURITY_RELOADING_TLS_H_
#define BALLAST_SERVER_SECURITY_RELOADING_TLS_H_

#include <memory>
#include <string>

#include <grpcpp/security/server_credentials.h>

#include "common/live_value.h"
#include "common/pem_files.h"

namespace ballast {

// The certificate that a server shows to its clients, and the CAs that it knows
// them by. PEM.
struct TlsMaterial {
  TlsIdentity identity;
  std::string client_ca;  // empty: clients show no certificate

  friend bool operator==(const TlsMaterial& a, const TlsMaterial& b) {
    return a.identity.cert == b.identity.cert &&
           a.identity.key == b.identity.key && a.client_ca == b.client_ca;
  }
};
using LiveTlsMaterial = LiveValue<std::shared_ptr<const TlsMaterial>>;

// As grpc::SslServerCredentials, but every handshake uses what `material` holds
// when it begins; existing connections stay as they are. Whether clients must
// show a certificate is decided once, here: whether `material` holds a
// client_ca now. Material that TLS cannot use, which ReadTlsIdentity prevents,
// leaves the previous one in use, and gRPC logs it.
//
// Only gRPC's C interface allows this (the fetcher of grpc_security.h); its
// file watcher in C++ accepts a key of another certificate and then refuses
// everyone. See docs/decisions/0013.
//
// SetAuthMetadataProcessor: the processor must not block, and is given no
// AuthContext.
std::shared_ptr<grpc::ServerCredentials> ReloadingTlsCredentials(
    std::shared_ptr<const LiveTlsMaterial> material);

}  // namespace ballast

#endif  // BALLAST_SERVER_SECURITY_RELOADING_TLS_H_
