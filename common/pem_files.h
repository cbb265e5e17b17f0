#ifndef BALLAST_COMMON_PEM_FILES_H_
#define BALLAST_COMMON_PEM_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ballast {

// TLS keys and certificates, read and checked before anyone relies on them: of
// what gRPC is given it says no more than that it does not work. PEM.

// A file as the user named it.
struct NamedFile {
  std::string name;  // the key or option: "security.tls.cert", "--tls-cert"
  std::string path;
};

// Who one is: a certificate, those between it and its CA after it, its key.
struct TlsIdentity {
  std::string cert;
  std::string key;
  absl::Time expires = absl::InfiniteFuture();
};

// Errors of both begin with the name and the path: those of ReadSmallFile;
// INVALID_ARGUMENT (not PEM, no certificate or key in it, a key that wants a
// password, one that is another certificate's, a certificate that is not valid
// at `now` or that TLS would not take, such as one of a short key). Both block on the disk.
absl::StatusOr<TlsIdentity> ReadTlsIdentity(const NamedFile& cert,
                                            const NamedFile& key,
                                            absl::Time now);
// One or more certificates of authorities.
absl::StatusOr<std::string> ReadTlsAuthorities(const NamedFile& file);

}  // namespace ballast

#endif  // BALLAST_COMMON_PEM_FILES_H_
