#ifndef BALLAST_COMMON_CHANNEL_SECURITY_H_
#define BALLAST_COMMON_CHANNEL_SECURITY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace grpc {
class ChannelArguments;
class ChannelCredentials;
}  // namespace grpc

namespace ballast {

// The files by which client and servers authenticate each other. Empty: no
// file.
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
  // A file whose first line is the bearer token.
  std::string token_file;
};

// The contents of SecurityFiles. A plain value; the default is no security.
struct ChannelSecurity {
  std::string ca;  // empty: no TLS
  std::string cert;
  std::string key;
  std::string server_name;
  std::string token;  // empty: none
};

// Reads and checks `files`. Messages name the command-line option (--tls-ca,
// --tls-cert, --tls-key, --tls-server-name, --token-file). Blocks on the disk.
// Errors: as ReadTlsIdentity and ReadTlsAuthorities; INVALID_ARGUMENT (an
// option without the one that it requires, a damaged token).
absl::StatusOr<ChannelSecurity> LoadChannelSecurity(const SecurityFiles& files);

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
