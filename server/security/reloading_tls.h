#ifndef BALLAST_SERVER_SECURITY_RELOADING_TLS_H_
#define BALLAST_SERVER_SECURITY_RELOADING_TLS_H_

#include <memory>
#include <string>

#include <grpcpp/security/server_credentials.h>

#include "common/live_value.h"
#include "common/pem_files.h"

namespace ballast {

// What a server shows to its clients, and by whom it knows them. PEM.
struct TlsMaterial {
  TlsIdentity identity;
  std::string client_ca;  // empty: clients show no certificate

  friend bool operator==(const TlsMaterial& a, const TlsMaterial& b) {
    return a.identity.cert == b.identity.cert &&
           a.identity.key == b.identity.key && a.client_ca == b.client_ca;
  }
};
using LiveTlsMaterial = LiveValue<std::shared_ptr<const TlsMaterial>>;

// grpc::SslServerCredentials, but that every handshake goes by what `material`
// holds when it begins; connections that are there stay as they are. Whether
// clients must show a certificate is decided here once: by whether `material`
// holds a client_ca now. A material that TLS cannot use, against which
// ReadTlsIdentity guards, leaves those before in use, and gRPC logs it.
//
// gRPC asks for certificates so through its C interface only (the fetcher of
// grpc_security.h); its watcher of files, in C++, takes a key of another
// certificate and then refuses everyone. See docs/decisions/0013.
//
// SetAuthMetadataProcessor: the processor must not block, and is given no
// AuthContext.
std::shared_ptr<grpc::ServerCredentials> ReloadingTlsCredentials(
    std::shared_ptr<const LiveTlsMaterial> material);

}  // namespace ballast

#endif  // BALLAST_SERVER_SECURITY_RELOADING_TLS_H_
