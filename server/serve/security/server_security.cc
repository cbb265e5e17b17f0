#include "server/serve/security/server_security.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/server_credentials.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/grpc_status.h"
#include "common/log.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/config/config_validate.h"

namespace ballast {
namespace {

constexpr size_t kMaxEntries = 4096;

// Digests have one length, so comparing them does not reveal the tokens'
// lengths either.
std::array<uint8_t, 32> ComputeDigest(absl::string_view token) {
  std::array<uint8_t, 32> digest;
  SHA256(reinterpret_cast<const uint8_t*>(token.data()), token.size(),
         digest.data());
  return digest;
}

}  // namespace

absl::StatusOr<TokenList> TokenList::Parse(absl::string_view text,
                                           absl::string_view file,
                                           absl::string_view job) {
  TokenList list;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::string place = absl::StrCat(file, ":", ++number);
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0].front() == '#') continue;
    BALLAST_RETURN_IF_ERROR(Annotate(CheckToken(words[0]), place));
    bool allowed = words.size() == 1;
    for (size_t i = 1; i < words.size(); ++i) {
      if (!IsJobName(words[i])) {
        // The text is not shown: it might be a token.
        return absl::InvalidArgumentError(
            absl::StrCat(place, ": word ", i + 1,
                         " is not the name of a job: letters, digits, _, . "
                         "and - alone"));
      }
      allowed = allowed || words[i] == job;
    }
    if (list.entries_.size() == kMaxEntries) {
      return absl::InvalidArgumentError(absl::StrCat(
          place, ": more than ", kMaxEntries, " tokens, which is the most"));
    }
    list.entries_.push_back({ComputeDigest(words[0]), allowed});
    if (allowed && list.own_.empty()) list.own_ = std::string(words[0]);
  }
  if (!list.own_.empty()) return list;
  return absl::InvalidArgumentError(absl::StrCat(
      file, ": no token is for ",
      job.empty() ? std::string("any job, and security.job is not set")
                  : absl::StrCat("security.job, ", job),
      ": no client could be admitted"));
}

TokenList::Verdict TokenList::Check(absl::string_view token) const {
  const std::array<uint8_t, 32> digest = ComputeDigest(token);
  bool known = false;
  bool allowed = false;
  for (const Entry& entry : entries_) {
    const bool same =
        CRYPTO_memcmp(digest.data(), entry.digest.data(), digest.size()) == 0;
    known |= same;
    allowed |= same & entry.allowed;
  }
  if (allowed) return Verdict::kAllowed;
  return known ? Verdict::kOtherJob : Verdict::kUnknown;
}

namespace {

constexpr size_t kMaxTokenBytes = size_t{4} << 20;

void WarnOfReaders(absl::string_view key, const std::string& path) {
  if (!AnyoneMayRead(path)) return;
  LogWarning(key, ": ", path,
             " can be read by anyone on this machine; `chmod o-r` it");
}

absl::string_view ToView(grpc::string_ref text) {
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
        absl::StartsWith(ToView(path->second), "/grpc.health.v1.Health/");
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
    return ToGrpcStatus(Judge(*tokens_->Get(), ToView(begin->second)));
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
  const auto text = ReadSmallFile(security.tokens_file(), kMaxTokenBytes);
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
    if (!tls.ca().empty()) {
      BALLAST_ASSIGN_OR_RETURN(
          loaded.ca_of_peers_,
          ReadTlsAuthorities({"security.tls.ca", tls.ca()}));
    }
    loaded.tls_ = std::make_shared<LiveTlsMaterial>(
        std::make_shared<const TlsMaterial>(std::move(material)));
    loaded.tls_files_ = tls;
  }
  if (!security.tokens_file().empty()) {
    BALLAST_ASSIGN_OR_RETURN(TokenList tokens, ReadTokens(security));
    loaded.tokens_ = std::make_shared<LiveTokens>(
        std::make_shared<const TokenList>(std::move(tokens)));
  }
  return loaded;
}

PeerSecurity ServerSecurity::to_peers() const {
  return [tls = tls_, tokens = tokens_, ca = ca_of_peers_] {
    ChannelSecurity security;
    if (tls != nullptr) {
      const std::shared_ptr<const TlsMaterial> material = tls->Get();
      security.ca = ca.empty() ? material->client_ca : ca;
      security.cert = material->identity.cert;
      security.key = material->identity.key;
    }
    if (tokens != nullptr) {
      security.token = tokens->Get()->own();
      security.current_token = [tokens] { return tokens->Get()->own(); };
    }
    return security;
  };
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

std::shared_ptr<grpc::ServerCredentials> ServerSecurity::Credentials() const {
  if (tokens_ == nullptr) return grpc::InsecureServerCredentials();
  // Plain on the wire, like insecure credentials, but gRPC checks tokens only
  // with these.
  auto credentials = grpc::experimental::LocalServerCredentials(UDS);
  credentials->SetAuthMetadataProcessor(std::make_shared<TokenGate>(tokens_));
  return credentials;
}

}  // namespace ballast
