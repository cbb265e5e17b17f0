#ifndef BALLAST_SERVER_SECURITY_TLS_MATERIAL_H_
#define BALLAST_SERVER_SECURITY_TLS_MATERIAL_H_

#include <memory>
#include <string>

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

}  // namespace ballast

#endif  // BALLAST_SERVER_SECURITY_TLS_MATERIAL_H_
