#ifndef BALLAST_COMMON_PEM_FILES_H_
#define BALLAST_COMMON_PEM_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ballast {

// TLS keys and certificates (PEM), read and checked before use: gRPC itself
// says of a bad one only that it does not work.

// A file as the user named it.
struct NamedFile {
  std::string name;  // the key or option: "security.tls.cert", "--tls-cert"
  std::string path;
};

// A certificate, followed by those between it and its CA, and its key.
struct TlsIdentity {
  std::string cert;
  std::string key;
  absl::Time expires = absl::InfiniteFuture();
};

// Errors of both begin with the name and the path: as ReadSmallFile;
// INVALID_ARGUMENT (not PEM, no certificate or key in it, a key with a password
// or of another certificate, a certificate that is not valid at `now` or that
// TLS refuses, such as one with a short key). Both block on the disk.
absl::StatusOr<TlsIdentity> ReadTlsIdentity(const NamedFile& cert,
                                            const NamedFile& key,
                                            absl::Time now);
// One or more certificates of CAs.
absl::StatusOr<std::string> ReadTlsAuthorities(const NamedFile& file);

}  // namespace ballast

#endif  // BALLAST_COMMON_PEM_FILES_H_
