#ifndef BALLAST_SERVER_SERVICE_SERVER_SECURITY_H_
#define BALLAST_SERVER_SERVICE_SERVER_SECURITY_H_

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/security/server_credentials.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/channel_security.h"
#include "common/live_value.h"
#include "common/pem_files.h"
#include "proto/config.pb.h"
#include "server/service/token_list.h"

namespace ballast {

// Who may talk to a server, as `security` of the configuration says. Only the
// tokens can be replaced once it is loaded. Thread-safe.
//
//   address   security.tls        security.tokens_file
//   unix:     none: mode 0660     a token with every call
//   TCP       TLS; client_ca: a   a token with every call
//             certificate of the
//             client, too
//
// Health checks need no token, so that those who watch over processes need
// none; all else does, reflection too.
class ServerSecurity {
 public:
  // Reads and checks every file that `security` names; a key or token file that
  // anyone on the machine may read is worth a warning in the log. Blocks on the
  // disk. Errors name the key and the file: those of ReadTlsIdentity,
  // ReadTlsAuthorities, ReadSmallFile and TokenList::Parse.
  static absl::StatusOr<ServerSecurity> Load(const v1::Security& security);

  // For listening at `address`.
  std::shared_ptr<grpc::ServerCredentials> CredentialsFor(
      absl::string_view address) const;

  // Of a request over HTTP with that `Authorization`, if any: OK, or
  // UNAUTHENTICATED or PERMISSION_DENIED with the reason. OK for all where no
  // token is needed.
  absl::Status CheckAuthorization(
      const std::optional<std::string>& authorization) const;

  // Reads `security.tokens_file` anew: every call from here on is held to what
  // it says, whichever tokens came before; streams that are open go on. Only
  // where there were tokens before. Errors: as Load; then nothing has changed.
  absl::Status ReloadTokens(const v1::Security& security) const;

  // How this server goes to the job's others: with its own certificate and the
  // first token of the job, as of Load.
  const ChannelSecurity& to_peers() const { return to_peers_; }

 private:
  using LiveTokens = LiveValue<std::shared_ptr<const TokenList>>;

  ServerSecurity() = default;

  bool has_tls_ = false;
  TlsIdentity identity_;
  std::string client_ca_;
  // Shared with what asks for them; null: none is needed.
  std::shared_ptr<LiveTokens> tokens_;
  ChannelSecurity to_peers_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_SERVER_SECURITY_H_
