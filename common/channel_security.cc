#include "common/channel_security.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/net_address.h"
#include "common/pem_files.h"
#include "common/small_file.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr size_t kMinToken = 16;
constexpr size_t kMaxToken = 4096;

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  auto bytes = ReadSmallFile(path, 2 * kMaxToken);
  if (!bytes.ok()) return Annotate(bytes.status(), "--token-file");
  absl::string_view line = *bytes;
  line = absl::StripAsciiWhitespace(line.substr(0, line.find('\n')));
  BALLAST_RETURN_IF_ERROR(
      Annotate(CheckToken(line), absl::StrCat("--token-file: ", path, ":1")));
  return std::string(line);
}

// The token in a file that may be replaced meanwhile. Thread-safe.
class TokenFile {
 public:
  TokenFile(std::string path, std::string token)
      : path_(std::move(path)), token_(std::move(token)) {}

  std::string Read() {
    absl::StatusOr<std::string> token = ReadToken(path_);
    MutexLock lock(&mutex_);
    if (token.ok()) {
      token_ = *std::move(token);
      fault_.clear();
    } else if (fault_ != token.status().message()) {
      fault_ = std::string(token.status().message());
      LogWarning(fault_, "; calls go on with the token that it held before");
    }
    return token_;
  }

 private:
  const std::string path_;
  Mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_);
  std::string fault_ ABSL_GUARDED_BY(mutex_);  // the last one logged
};

// Adds the token to each call, as grpc::AccessTokenCredentials do with one that
// stays.
class TokenPlugin final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit TokenPlugin(std::function<std::string()> token)
      : token_(std::move(token)) {}

  // A small file at most: not worth a thread for each call.
  bool IsBlocking() const override { return false; }
  const char* GetType() const override { return "bearer token"; }
  grpc::Status GetMetadata(
      grpc::string_ref /*service_url*/, grpc::string_ref /*method_name*/,
      const grpc::AuthContext& /*channel*/,
      std::multimap<grpc::string, grpc::string>* metadata) override {
    metadata->emplace("authorization", absl::StrCat("Bearer ", token_()));
    return grpc::Status::OK;
  }
  grpc::string DebugString() override { return "a bearer token"; }

 private:
  const std::function<std::string()> token_;
};

}  // namespace

absl::Status CheckToken(absl::string_view token) {
  if (token.size() < kMinToken || token.size() > kMaxToken) {
    return absl::InvalidArgumentError(
        absl::StrCat("found a token of ", token.size(), " bytes; wanted ",
                     kMinToken, " to ", kMaxToken));
  }
  const bool plain = std::all_of(token.begin(), token.end(), [](char c) {
    return absl::ascii_isalnum(c) ||
           absl::string_view("-._~+/=").find(c) != absl::string_view::npos;
  });
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "found a token that holds other bytes than letters, digits and -._~+/=");
}

absl::Status ReadTls(const SecurityFiles& files, ChannelSecurity* security) {
  std::string ca;
  TlsIdentity identity;
  if (!files.tls_ca.empty()) {
    BALLAST_ASSIGN_OR_RETURN(ca,
                             ReadTlsAuthorities({"--tls-ca", files.tls_ca}));
  }
  if (!files.tls_cert.empty()) {
    BALLAST_ASSIGN_OR_RETURN(
        identity, ReadTlsIdentity({"--tls-cert", files.tls_cert},
                                  {"--tls-key", files.tls_key}, absl::Now()));
  }
  security->ca = std::move(ca);
  security->cert = std::move(identity.cert);
  security->key = std::move(identity.key);
  return absl::OkStatus();
}

absl::StatusOr<ChannelSecurity> LoadChannelSecurity(
    const SecurityFiles& files) {
  ChannelSecurity security;
  if (files.tls_cert.empty() != files.tls_key.empty()) {
    return absl::InvalidArgumentError(files.tls_key.empty()
                                          ? "--tls-cert needs --tls-key"
                                          : "--tls-key needs --tls-cert");
  }
  if (files.tls_ca.empty() &&
      (!files.tls_cert.empty() || !files.tls_server_name.empty())) {
    return absl::InvalidArgumentError(absl::StrCat(
        files.tls_cert.empty() ? "--tls-server-name" : "--tls-cert",
        " needs --tls-ca: the CAs that may sign a server's certificate"));
  }
  BALLAST_RETURN_IF_ERROR(ReadTls(files, &security));
  if (!files.tls_ca.empty()) {
    security.files = files;
    security.current_tls =
        std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
            files.tls_key, files.tls_cert, files.tls_ca,
            static_cast<unsigned>(absl::ToInt64Seconds(files.renewal)));
  }
  security.server_name = files.tls_server_name;
  if (!files.token_file.empty()) {
    BALLAST_ASSIGN_OR_RETURN(security.token, ReadToken(files.token_file));
    security.current_token =
        [file = std::make_shared<TokenFile>(files.token_file, security.token)] {
          return file->Read();
        };
  }
  return security;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsFor(
    const ChannelSecurity& security, absl::string_view address) {
  std::shared_ptr<grpc::ChannelCredentials> channel;
  if (!UnixPath(address).empty()) {
    if (security.token.empty()) return grpc::InsecureChannelCredentials();
    // Local credentials add nothing on the wire; gRPC sends tokens only over
    // credentials.
    channel = grpc::experimental::LocalCredentials(UDS);
  } else if (security.current_tls != nullptr) {
    grpc::experimental::TlsChannelCredentialsOptions options;
    options.set_certificate_provider(security.current_tls);
    options.watch_root_certs();
    if (!security.cert.empty()) options.watch_identity_key_cert_pairs();
    channel = grpc::experimental::TlsCredentials(options);
  } else if (!security.ca.empty()) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = security.ca;
    options.pem_cert_chain = security.cert;
    options.pem_private_key = security.key;
    channel = grpc::SslCredentials(options);
  } else if (security.token.empty()) {
    return grpc::InsecureChannelCredentials();
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("address ", address,
                     ": a token would cross the network for all to read; give "
                     "--tls-ca, or use a Unix socket"));
  }
  if (security.token.empty()) return channel;
  return grpc::CompositeChannelCredentials(
      channel,
      security.current_token == nullptr
          ? grpc::AccessTokenCredentials(security.token)
          : grpc::MetadataCredentialsFromPlugin(
                std::make_unique<TokenPlugin>(security.current_token)));
}

void SetSecurityArguments(const ChannelSecurity& security,
                          grpc::ChannelArguments* arguments) {
  if (!security.server_name.empty()) {
    arguments->SetSslTargetNameOverride(security.server_name);
  }
}

}  // namespace ballast
