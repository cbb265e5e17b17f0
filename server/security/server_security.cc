#include "server/security/server_security.h"

#include <cstddef>
#include <iterator>
#include <utility>

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/grpc_status.h"
#include "common/log.h"
#include "common/net_address.h"
#include "common/pem_files.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/security/reloading_tls.h"

namespace ballast {
namespace {

constexpr size_t kMostTokenBytes = size_t{4} << 20;

void WarnOfReaders(absl::string_view key, const std::string& path) {
  if (!AnyoneMayRead(path)) return;
  LogWarning(key, ": ", path,
             " can be read by anyone on this machine; `chmod o-r` it");
}

absl::string_view ViewOf(grpc::string_ref text) {
  return absl::string_view(text.data(), text.size());
}

// Checks one `authorization`, from gRPC or HTTP.
absl::Status Judge(const TokenList& tokens, absl::string_view authorization) {
  if (!absl::ConsumePrefix(&authorization, "Bearer ")) {
    return absl::UnauthenticatedError(
        "the call's `authorization` is not one bearer token");
  }
  switch (tokens.Check(authorization)) {
    case TokenList::Verdict::kAllowed:
      return absl::OkStatus();
    case TokenList::Verdict::kOtherJob:
      return absl::PermissionDeniedError(
          "the client's token is for another job than this server's; is it the "
          "right server, and does security.job say its name?");
    case TokenList::Verdict::kUnknown:
      break;
  }
  return absl::UnauthenticatedError(
      "the server does not know the client's token; was "
      "security.tokens_file changed without a SIGHUP to the server?");
}

// Requires a token with every call.
class TokenGate final : public grpc::AuthMetadataProcessor {
 public:
  explicit TokenGate(
      std::shared_ptr<const LiveValue<std::shared_ptr<const TokenList>>> tokens)
      : tokens_(std::move(tokens)) {}

  // Only some hashing: not worth a thread.
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*,
                       OutputMetadata* consumed, OutputMetadata*) override {
    const auto path = metadata.find(":path");
    const bool open =
        path != metadata.end() &&
        absl::StartsWith(ViewOf(path->second), "/grpc.health.v1.Health/");
    const auto [begin, end] = metadata.equal_range("authorization");
    if (begin == end) {
      return open ? grpc::Status::OK
                  : Refuse(
                        "no token came with the call; give the client "
                        "--token-file with one for this job");
    }
    // Consumes the metadata here, so that no later code can show it.
    for (auto entry = begin; entry != end; ++entry) {
      consumed->emplace(
          std::string(entry->first.data(), entry->first.size()),
          std::string(entry->second.data(), entry->second.size()));
    }
    if (open) return grpc::Status::OK;
    if (std::next(begin) != end) {
      return Refuse("the call's `authorization` is not one bearer token");
    }
    return ToGrpcStatus(Judge(*tokens_->Get(), ViewOf(begin->second)));
  }

 private:
  static grpc::Status Refuse(const char* why) {
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, why);
  }

  const std::shared_ptr<const LiveValue<std::shared_ptr<const TokenList>>>
      tokens_;
};

// Errors name the key and the file.
absl::StatusOr<TokenList> ReadTokens(const v1::Security& security) {
  const auto text = ReadSmallFile(security.tokens_file(), kMostTokenBytes);
  if (!text.ok()) return Annotate(text.status(), "security.tokens_file");
  auto tokens = TokenList::Parse(*text, security.tokens_file(), security.job());
  if (!tokens.ok()) return Annotate(tokens.status(), "security.tokens_file");
  WarnOfReaders("security.tokens_file", security.tokens_file());
  return tokens;
}

// Errors name the key and the file.
absl::StatusOr<TlsMaterial> ReadTls(const v1::Security::Tls& tls) {
  TlsMaterial material;
  BALLAST_ASSIGN_OR_RETURN(
      material.identity,
      ReadTlsIdentity({"security.tls.cert", tls.cert()},
                      {"security.tls.key", tls.key()}, absl::Now()));
  if (!tls.client_ca().empty()) {
    BALLAST_ASSIGN_OR_RETURN(
        material.client_ca,
        ReadTlsAuthorities({"security.tls.client_ca", tls.client_ca()}));
  }
  return material;
}

}  // namespace

absl::StatusOr<ServerSecurity> ServerSecurity::Load(
    const v1::Security& security) {
  ServerSecurity loaded;
  if (security.has_tls()) {
    const v1::Security::Tls& tls = security.tls();
    BALLAST_ASSIGN_OR_RETURN(TlsMaterial material, ReadTls(tls));
    WarnOfReaders("security.tls.key", tls.key());
    loaded.to_peers_.ca = material.client_ca;
    if (!tls.ca().empty()) {
      BALLAST_ASSIGN_OR_RETURN(
          loaded.to_peers_.ca,
          ReadTlsAuthorities({"security.tls.ca", tls.ca()}));
    }
    loaded.to_peers_.cert = material.identity.cert;
    loaded.to_peers_.key = material.identity.key;
    loaded.tls_ = std::make_shared<LiveTlsMaterial>(
        std::make_shared<const TlsMaterial>(std::move(material)));
    loaded.tls_files_ = tls;
  }
  if (!security.tokens_file().empty()) {
    BALLAST_ASSIGN_OR_RETURN(TokenList tokens, ReadTokens(security));
    loaded.to_peers_.token = tokens.own();
    loaded.tokens_ = std::make_shared<LiveTokens>(
        std::make_shared<const TokenList>(std::move(tokens)));
  }
  return loaded;
}

absl::Status ServerSecurity::Reload(const v1::Security& security) {
  std::optional<TokenList> tokens;
  if (tokens_ != nullptr) {
    BALLAST_ASSIGN_OR_RETURN(tokens, ReadTokens(security));
  }
  if (tls_ != nullptr) {
    BALLAST_ASSIGN_OR_RETURN(TlsMaterial material, ReadTls(security.tls()));
    SetTls(std::move(material), security.tls());
  }
  if (tokens.has_value()) {
    tokens_->Set(std::make_shared<const TokenList>(*std::move(tokens)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ServerSecurity::RenewTls() {
  if (tls_ == nullptr) return false;
  BALLAST_ASSIGN_OR_RETURN(TlsMaterial material, ReadTls(tls_files_));
  if (material == *tls_->Get()) return false;
  SetTls(std::move(material), tls_files_);
  return true;
}

void ServerSecurity::SetTls(TlsMaterial material,
                            const v1::Security::Tls& files) {
  tls_files_ = files;
  if (material == *tls_->Get()) return;
  WarnOfReaders("security.tls.key", files.key());
  LogInfo("security.tls: new connections use the new files; ", files.cert(),
          " is valid until ",
          absl::FormatTime(material.identity.expires, absl::UTCTimeZone()));
  tls_->Set(std::make_shared<const TlsMaterial>(std::move(material)));
}

absl::Status ServerSecurity::CheckAuthorization(
    const std::optional<std::string>& authorization) const {
  if (tokens_ == nullptr) return absl::OkStatus();
  if (!authorization.has_value()) {
    return absl::UnauthenticatedError(
        "no token came with the request; wanted the header `Authorization: "
        "Bearer TOKEN` with one for this job");
  }
  return Judge(*tokens_->Get(), *authorization);
}

std::shared_ptr<grpc::ServerCredentials> ServerSecurity::CredentialsFor(
    absl::string_view address) const {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  if (!UnixPath(address).empty()) {
    if (tokens_ == nullptr) return grpc::InsecureServerCredentials();
    // Plain on the wire, like insecure credentials, but gRPC checks tokens only
    // with these.
    credentials = grpc::experimental::LocalServerCredentials(UDS);
  } else if (tls_ != nullptr) {
    credentials = ReloadingTlsCredentials(tls_);
  } else {
    return grpc::InsecureServerCredentials();
  }
  if (tokens_ != nullptr) {
    credentials->SetAuthMetadataProcessor(std::make_shared<TokenGate>(tokens_));
  }
  return credentials;
}

}  // namespace ballast
