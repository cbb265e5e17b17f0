#include "server/service/server_security.h"

#include <cstddef>
#include <utility>

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/grpc_status.h"
#include "common/log.h"
#include "common/small_file.h"
#include "common/status_macros.h"

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

// Of one `authorization`, whichever way it came.
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
      "the client's token is none that the server knows; was "
      "security.tokens_file changed without a SIGHUP to the server?");
}

// Asks every call for its token.
class TokenGate final : public grpc::AuthMetadataProcessor {
 public:
  explicit TokenGate(
      std::shared_ptr<const LiveValue<std::shared_ptr<const TokenList>>> tokens)
      : tokens_(std::move(tokens)) {}

  // Some hashing: not worth a thread.
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
    // Goes no further, where something might show it.
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

}  // namespace

absl::StatusOr<ServerSecurity> ServerSecurity::Load(
    const v1::Security& security) {
  ServerSecurity loaded;
  const v1::Security::Tls& tls = security.tls();
  if (security.has_tls()) {
    loaded.has_tls_ = true;
    BALLAST_ASSIGN_OR_RETURN(
        loaded.identity_,
        ReadTlsIdentity({"security.tls.cert", tls.cert()},
                        {"security.tls.key", tls.key()}, absl::Now()));
    WarnOfReaders("security.tls.key", tls.key());
    if (!tls.client_ca().empty()) {
      BALLAST_ASSIGN_OR_RETURN(
          loaded.client_ca_,
          ReadTlsAuthorities({"security.tls.client_ca", tls.client_ca()}));
      loaded.to_peers_.ca = loaded.client_ca_;
    }
    if (!tls.ca().empty()) {
      BALLAST_ASSIGN_OR_RETURN(
          loaded.to_peers_.ca,
          ReadTlsAuthorities({"security.tls.ca", tls.ca()}));
    }
    loaded.to_peers_.cert = loaded.identity_.cert;
    loaded.to_peers_.key = loaded.identity_.key;
  }
  if (!security.tokens_file().empty()) {
    BALLAST_ASSIGN_OR_RETURN(TokenList tokens, ReadTokens(security));
    loaded.to_peers_.token = tokens.own();
    loaded.tokens_ = std::make_shared<LiveTokens>(
        std::make_shared<const TokenList>(std::move(tokens)));
  }
  return loaded;
}

absl::Status ServerSecurity::ReloadTokens(const v1::Security& security) const {
  if (tokens_ == nullptr) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(TokenList tokens, ReadTokens(security));
  tokens_->Set(std::make_shared<const TokenList>(std::move(tokens)));
  return absl::OkStatus();
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
  if (absl::StartsWith(address, "unix:")) {
    if (tokens_ == nullptr) return grpc::InsecureServerCredentials();
    // On the wire as if there were none; gRPC asks for tokens over no other.
    credentials = grpc::experimental::LocalServerCredentials(UDS);
  } else if (has_tls_) {
    grpc::SslServerCredentialsOptions options(
        client_ca_.empty()
            ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
            : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = client_ca_;
    options.pem_key_cert_pairs.push_back({identity_.key, identity_.cert});
    credentials = grpc::SslServerCredentials(options);
  } else {
    return grpc::InsecureServerCredentials();
  }
  if (tokens_ != nullptr) {
    credentials->SetAuthMetadataProcessor(std::make_shared<TokenGate>(tokens_));
  }
  return credentials;
}

}  // namespace ballast
