#ifndef BALLAST_COMMON_PEM_FILES_H_
#define BALLAST_COMMON_PEM_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ballast {

// Reads and checks TLS keys and certificates (PEM) before use, since gRPC gives
// no reason when one is bad.

// A file as the user named it.
struct NamedFile {
  std::string name;  // the key or option: "security.tls.cert", "--tls-cert"
  std::string path;
};

// A certificate, followed by the intermediate certificates up to its CA, and
// its key.
struct TlsIdentity {
  std::string cert;
  std::string key;
  absl::Time expires = absl::InfiniteFuture();
};

// Both functions block on the disk. Their errors begin with the name and the
// path: as ReadSmallFile; INVALID_ARGUMENT (not PEM, no certificate or key in
// it, a key with a password or of another certificate, a certificate that is
// not valid at `now` or that TLS rejects, such as one with a short key).
absl::StatusOr<TlsIdentity> ReadTlsIdentity(const NamedFile& cert,
                                            const NamedFile& key,
                                            absl::Time now);
// Reads one or more CA certificates.
absl::StatusOr<std::string> ReadTlsAuthorities(const NamedFile& file);

}  // namespace ballast

#endif  // BALLAST_COMMON_PEM_FILES_H_
