#ifndef BALLAST_COMMON_CHANNEL_SECURITY_H_
#define BALLAST_COMMON_CHANNEL_SECURITY_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace grpc {
class ChannelArguments;
class ChannelCredentials;
namespace experimental {
class CertificateProviderInterface;
}  // namespace experimental
}  // namespace grpc

namespace ballast {

// The files by which client and servers authenticate each other. Empty: no
// file. All may be replaced while the client runs.
struct SecurityFiles {
  // PEM: the CAs of the servers' certificates. If given, TCP uses TLS; Unix
  // sockets never do.
  std::string tls_ca;
  // PEM: the client's certificate and its key, both or neither. Requires
  // tls_ca.
  std::string tls_cert;
  std::string tls_key;
  // The name in the servers' certificates, if it is not the host of their
  // addresses. Requires tls_ca.
  std::string tls_server_name;
  // A file whose first line is the bearer token. Each call reads it again.
  std::string token_file;
  // Time after which handshakes use replaced PEM files; whole seconds.
  absl::Duration renewal = absl::Seconds(10);
};

// The contents of SecurityFiles. The default is no security.
struct ChannelSecurity {
  std::string ca;  // empty: no TLS
  std::string cert;
  std::string key;
  std::string server_name;
  std::string token;  // empty: none
  // The token of each call, asked at its start; null: always `token`. Called
  // from gRPC's threads, so it must not wait.
  std::function<std::string()> current_token;
  // The files of ca, cert and key, and what each handshake uses of them; null:
  // always `ca`, `cert` and `key`.
  SecurityFiles files;
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> current_tls;
};

// Certificate and token that a server shows to other servers. Called before
// each connection, since both are replaced while the server runs.
using PeerSecurity = std::function<ChannelSecurity()>;

// Reads and checks `files`. Messages name the command-line option (--tls-ca,
// --tls-cert, --tls-key, --tls-server-name, --token-file). Blocks on the disk.
// A token file that is faulty later is logged, and the token before stays; of
// PEM files gRPC logs it.
// Errors: as ReadTlsIdentity and ReadTlsAuthorities; INVALID_ARGUMENT (an
// option without the one that it requires, a damaged token).
absl::StatusOr<ChannelSecurity> LoadChannelSecurity(const SecurityFiles& files);

// Reads what `files` hold now into ca, cert and key of `security`, which stay
// as they are after an error. Blocks on the disk. Errors: as
// LoadChannelSecurity.
absl::Status ReadTls(const SecurityFiles& files, ChannelSecurity* security);

// OK if a request can carry `token`: 16 to 4096 letters, digits and -._~+/=.
// Errors: INVALID_ARGUMENT, without the token.
absl::Status CheckToken(absl::string_view token);

// Credentials for a channel to `address`. Errors: INVALID_ARGUMENT (a token
// over TCP without TLS, where everyone could read it).
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsFor(
    const ChannelSecurity& security, absl::string_view address);

// Sets the channel arguments that `security` needs in addition to credentials.
void SetSecurityArguments(const ChannelSecurity& security,
                          grpc::ChannelArguments* arguments);

}  // namespace ballast

#endif  // BALLAST_COMMON_CHANNEL_SECURITY_H_
