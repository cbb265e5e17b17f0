#ifndef BALLAST_SERVER_SECURITY_SERVER_SECURITY_H_
#define BALLAST_SERVER_SECURITY_SERVER_SECURITY_H_

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/security/server_credentials.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/channel_security.h"
#include "common/live_value.h"
#include "proto/config.pb.h"
#include "server/security/reloading_tls.h"
#include "server/security/token_list.h"

namespace ballast {

// Who may talk to a server, as `security` of the configuration says. What its
// files hold can be read anew once it is loaded, whether there are tokens, TLS
// and certificates of clients is decided for good. Thread-safe, but for Reload
// and RenewTls, which are for one thread at a time.
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

  // Reads the files of `security` anew, those of TLS and those of tokens where
  // there were such before: every handshake and every call from here on is held
  // to what they say, whatever came before; connections and streams that are
  // open go on. Errors: as Load; then nothing has changed.
  absl::Status Reload(const v1::Security& security);

  // Reads the files of `security.tls` anew, as of the last Load or Reload, and
  // goes by them as Reload does. Whether they had changed, which is a line in
  // the log; false without TLS. Errors: as Load; then nothing has changed.
  absl::StatusOr<bool> RenewTls();

  // How this server goes to the job's others: with its own certificate and the
  // first token of the job, as of Load.
  const ChannelSecurity& to_peers() const { return to_peers_; }

 private:
  using LiveTokens = LiveValue<std::shared_ptr<const TokenList>>;

  ServerSecurity() = default;
  void SetTls(TlsMaterial material, const v1::Security::Tls& files);

  // Shared with what listens; null: there is no TLS.
  std::shared_ptr<LiveTlsMaterial> tls_;
  v1::Security::Tls tls_files_;
  // Shared with what asks for them; null: none is needed.
  std::shared_ptr<LiveTokens> tokens_;
  ChannelSecurity to_peers_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SECURITY_SERVER_SECURITY_H_
