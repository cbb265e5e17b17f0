#ifndef BALLAST_SERVER_SERVE_SECURITY_SERVER_SECURITY_H_
#define BALLAST_SERVER_SERVE_SECURITY_SERVER_SECURITY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/channel_security.h"
#include "common/mutex.h"
#include "common/pem_files.h"
#include "proto/config.pb.h"

namespace grpc {
class ServerCredentials;
}  // namespace grpc

namespace ballast {

// The bearer tokens of security.tokens_file. Holds their digests. Only the
// token that the server itself shows to the job's other servers is held in
// full. No message contains a token. Immutable; thread-safe.
class TokenList {
 public:
  enum class Verdict {
    kUnknown,   // no such token
    kOtherJob,  // only for other jobs
    kAllowed,
  };

  // Parses `text` of the file `file`, for a server of job `job` (security.job;
  // may be empty). A line is a token and the jobs that it is for; if none, it
  // is for any job. A token may have several lines. Errors: INVALID_ARGUMENT,
  // "FILE:LINE: ..." (not a token, not the name of a job) or because no token
  // is for this job.
  static absl::StatusOr<TokenList> Parse(absl::string_view text,
                                         absl::string_view file,
                                         absl::string_view job);

  // Takes the same time for any tokens in the list.
  Verdict Check(absl::string_view token) const;

  // The first token that is for this job.
  const std::string& own() const { return own_; }

 private:
  struct Entry {
    std::array<uint8_t, 32> digest;
    bool allowed;
  };

  TokenList() = default;

  std::vector<Entry> entries_;
  std::string own_;
};

// The certificate that a server shows to its clients, and the CAs by which it
// verifies the clients' certificates. PEM.
struct TlsMaterial {
  TlsIdentity identity;
  std::string client_ca;  // empty: clients show no certificate

  friend bool operator==(const TlsMaterial& a, const TlsMaterial& b) {
    return a.identity.cert == b.identity.cert &&
           a.identity.key == b.identity.key && a.client_ca == b.client_ca;
  }
};
using LiveTlsMaterial = LiveValue<std::shared_ptr<const TlsMaterial>>;

// Decides who may call a server, according to `security` of the configuration.
// Load decides whether there are tokens, TLS and client certificates; their
// files can be read again later. Thread-safe, except Reload and RenewTls, which
// are for one thread at a time.
//
//   address   security.tls        security.tokens_file
//   unix:     none: mode 0660     a token with every call
//   TCP       TLS; client_ca: a   a token with every call
//             certificate of the
//             client, too
//
// Health checks need no token, so that process supervisors need none; all other
// calls do, reflection included.
class ServerSecurity {
 public:
  // Reads and checks every file that `security` names; warns in the log of a
  // key or token file that anyone on the machine may read. Blocks on the disk.
  // Errors name the key and the file: as ReadTlsIdentity, ReadTlsAuthorities,
  // ReadSmallFile and TokenList::Parse.
  static absl::StatusOr<ServerSecurity> Load(const v1::Security& security);

  // Credentials of gRPC's connections. They come over a pair of Unix sockets
  // from a relay (relay.h), which is where TLS ends.
  std::shared_ptr<grpc::ServerCredentials> Credentials() const;

  // The material that every handshake uses at its start; null: there is no TLS.
  // Whether it has a client_ca does not change.
  std::shared_ptr<const LiveTlsMaterial> tls() const { return tls_; }

  // Checks the `Authorization` of an HTTP request, if it has one: OK, or
  // UNAUTHENTICATED or PERMISSION_DENIED with the reason. Always OK if no token
  // is needed.
  absl::Status CheckAuthorization(
      const std::optional<std::string>& authorization) const;

  // Reads the files of `security` again: TLS and token files, if there were any
  // before. They apply to every later handshake and call; open connections and
  // streams continue. Errors: as Load; then nothing has changed.
  absl::Status Reload(const v1::Security& security);

  // Reads the files of `security.tls` again, as named at the last Load or
  // Reload, and applies them as Reload does. Returns whether they had changed,
  // and logs it; false without TLS. Errors: as Load; then nothing has changed.
  absl::StatusOr<bool> RenewTls();

  // Security of new connections to the job's other servers: this server's own
  // certificate and the first token of the job, as of the last Load, Reload or
  // RenewTls. May be called when this is gone.
  PeerSecurity to_peers() const;

 private:
  using LiveTokens = LiveValue<std::shared_ptr<const TokenList>>;

  ServerSecurity() = default;
  void SetTls(TlsMaterial material, const v1::Security::Tls& files);

  // Shared with the listening ports; null: there is no TLS.
  std::shared_ptr<LiveTlsMaterial> tls_;
  v1::Security::Tls tls_files_;
  // Shared with the listening ports; null: no token is needed.
  std::shared_ptr<LiveTokens> tokens_;
  std::string ca_of_peers_;  // empty: the clients' CA
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SECURITY_SERVER_SECURITY_H_
