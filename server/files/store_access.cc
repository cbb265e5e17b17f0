#include "server/files/store_access.h"

#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <initializer_list>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/small_file.h"
#include "common/status_macros.h"

namespace ballast {

StoreEndpoint SplitEndpoint(absl::string_view endpoint) {
  StoreEndpoint split;
  if (absl::ConsumePrefix(&endpoint, "http://")) split.scheme = "http";
  absl::ConsumePrefix(&endpoint, "https://");
  absl::ConsumeSuffix(&endpoint, "/");
  split.authority = std::string(endpoint);
  return split;
}

absl::StatusOr<StoreKeys> KeysOfEnvironment(const GetVariable& get) {
  StoreKeys keys;
  keys.id = get("AWS_ACCESS_KEY_ID").value_or("");
  keys.secret = get("AWS_SECRET_ACCESS_KEY").value_or("");
  keys.session_token = get("AWS_SESSION_TOKEN").value_or("");
  for (const auto& [name, value] :
       {std::make_pair("AWS_ACCESS_KEY_ID", &keys.id),
        std::make_pair("AWS_SECRET_ACCESS_KEY", &keys.secret)}) {
    if (!value->empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "storage.s3.credentials is environment, but ", name,
        " is not set; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
        "choose credentials: instance, anonymous or a file"));
  }
  return keys;
}

absl::StatusOr<StoreKeys> ParseKeysFile(absl::string_view path,
                                        absl::string_view text) {
  StoreKeys keys;
  bool in_default = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') {
      in_default = line == "[default]";
      continue;
    }
    if (!in_default) continue;
    const std::pair<absl::string_view, absl::string_view> entry =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(entry.first);
    const std::string value(absl::StripAsciiWhitespace(entry.second));
    if (name == "aws_access_key_id") keys.id = value;
    if (name == "aws_secret_access_key") keys.secret = value;
    if (name == "aws_session_token") keys.session_token = value;
  }
  if (keys.id.empty() || keys.secret.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": no ",
        keys.id.empty() ? "aws_access_key_id" : "aws_secret_access_key",
        " in a section [default]; storage.s3.credentials wants a file like "
        "~/.aws/credentials"));
  }
  return keys;
}

std::string WithoutKeys(absl::string_view message, const StoreKeys& keys) {
  std::string clean(message);
  for (const std::string* key : {&keys.id, &keys.secret, &keys.session_token}) {
    if (key->size() < 4) continue;  // not a real key; part of many words
    clean = absl::StrReplaceAll(clean, {{*key, "***"}});
  }
  return clean;
}

namespace {

constexpr char kAzureKey[] = "storage.azure.credentials";
constexpr size_t kMaxFile = 1 << 20;

// With such an endpoint, the account is in the path.
void SetEndpoint(absl::string_view endpoint, AzureAccess* access) {
  StoreEndpoint split = SplitEndpoint(endpoint);
  access->scheme = std::move(split.scheme);
  access->blob_authority = split.authority;
  access->dfs_authority = std::move(split.authority);
}

// "https://ACCOUNT.blob.SUFFIX" or "http://HOST:PORT/ACCOUNT".
void SetBlobEndpoint(absl::string_view endpoint, AzureAccess* access) {
  StoreEndpoint split = SplitEndpoint(endpoint);
  const size_t slash = split.authority.find('/');
  if (slash != std::string::npos) {
    access->account = split.authority.substr(slash + 1);
    split.authority.resize(slash);
    access->scheme = split.scheme;
    access->blob_authority = access->dfs_authority = split.authority;
    return;
  }
  const size_t blob = split.authority.find(".blob.");
  if (blob == std::string::npos) return;
  access->account = split.authority.substr(0, blob);
  access->scheme = split.scheme;
  access->blob_authority = split.authority.substr(blob);
  access->dfs_authority =
      absl::StrCat(".dfs.", split.authority.substr(blob + 6));
}

// The first kind of credentials whose variables are set.
absl::StatusOr<AzureAccess> OfEnvironment(const GetVariable& get) {
  AzureAccess access;
  const std::string whole = get("AZURE_STORAGE_CONNECTION_STRING").value_or("");
  if (!whole.empty()) {
    return ParseConnectionString("AZURE_STORAGE_CONNECTION_STRING", whole);
  }
  access.secret = get("AZURE_STORAGE_KEY").value_or("");
  if (!access.secret.empty()) {
    access.kind = AzureAccess::Kind::kKey;
    return access;
  }
  access.secret = get("AZURE_STORAGE_SAS_TOKEN").value_or("");
  if (!access.secret.empty()) {
    access.kind = AzureAccess::Kind::kSas;
    return access;
  }
  if (!get("AZURE_TENANT_ID").value_or("").empty() &&
      !get("AZURE_CLIENT_ID").value_or("").empty()) {
    access.kind = AzureAccess::Kind::kPrincipal;
    return access;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      kAzureKey,
      " is environment, but none of AZURE_STORAGE_CONNECTION_STRING, "
      "AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN and AZURE_TENANT_ID with "
      "AZURE_CLIENT_ID is set; set one, or choose credentials: instance, "
      "anonymous or a file"));
}

absl::StatusOr<AzureAccess> OfCredentials(const std::string& credentials,
                                          const GetVariable& get) {
  AzureAccess access;
  if (credentials == "environment") return OfEnvironment(get);
  if (credentials == "anonymous") {
    access.kind = AzureAccess::Kind::kAnonymous;
    return access;
  }
  if (credentials == "instance") return access;
  const absl::StatusOr<std::string> text = ReadSmallFile(credentials, kMaxFile);
  if (!text.ok()) return Annotate(text.status(), kAzureKey);
  return ParseConnectionString(credentials, *text);
}

}  // namespace

absl::StatusOr<AzureAccess> ParseConnectionString(absl::string_view where,
                                                  absl::string_view text) {
  std::map<std::string, std::string> fields;
  for (const absl::string_view part :
       absl::StrSplit(absl::StripAsciiWhitespace(text), ';')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    fields[absl::AsciiStrToLower(absl::StripAsciiWhitespace(field.first))] =
        std::string(absl::StripAsciiWhitespace(field.second));
  }
  AzureAccess access;
  if (!fields["endpointsuffix"].empty()) {
    access.blob_authority = absl::StrCat(".blob.", fields["endpointsuffix"]);
    access.dfs_authority = absl::StrCat(".dfs.", fields["endpointsuffix"]);
  }
  if (fields["defaultendpointsprotocol"] == "http") access.scheme = "http";
  if (!fields["blobendpoint"].empty()) {
    SetBlobEndpoint(fields["blobendpoint"], &access);
  }
  if (!fields["accountname"].empty()) access.account = fields["accountname"];
  if (!fields["accountkey"].empty()) {
    access.kind = AzureAccess::Kind::kKey;
    access.secret = fields["accountkey"];
  } else if (!fields["sharedaccesssignature"].empty()) {
    access.kind = AzureAccess::Kind::kSas;
    access.secret = fields["sharedaccesssignature"];
  } else {
    return absl::FailedPreconditionError(absl::StrCat(
        where,
        ": neither AccountKey nor SharedAccessSignature; wanted a connection "
        "string, AccountName=…;AccountKey=…, as Azure's portal shows it"));
  }
  return access;
}

absl::StatusOr<AzureAccess> ResolveAzureAccess(const v1::Storage::Azure& azure,
                                               const GetVariable& get) {
  BALLAST_ASSIGN_OR_RETURN(AzureAccess access,
                           OfCredentials(azure.credentials(), get));
  std::string account = azure.account();
  if (account.empty()) account = get("AZURE_STORAGE_ACCOUNT").value_or("");
  if (account.empty()) account = access.account;
  if (account.empty()) {
    return absl::FailedPreconditionError(
        "storage.azure.account is not set, nor is AZURE_STORAGE_ACCOUNT; "
        "wanted "
        "the name of the storage account");
  }
  if (!access.account.empty() && !azure.account().empty() &&
      access.account != account) {
    return absl::FailedPreconditionError(
        absl::StrCat("storage.azure.account is ", account,
                     ", but the connection string is of ", access.account,
                     "; name one of them"));
  }
  if (access.account.empty()) access.account = account;
  if (!azure.endpoint().empty()) SetEndpoint(azure.endpoint(), &access);
  return access;
}

namespace {

constexpr char kGcsKey[] = "storage.gcs.credentials";
constexpr char kFileVariable[] = "GOOGLE_APPLICATION_CREDENTIALS";
constexpr size_t kMaxKeyFile = 1 << 20;

// The places where Google's libraries look.
absl::Status CheckEnvironment(const GetVariable& get) {
  const std::string named = get(kFileVariable).value_or("");
  if (!named.empty()) {
    return Annotate(ReadSmallFile(named, kMaxKeyFile).status(),
                    absl::StrCat(kGcsKey, ": ", kFileVariable));
  }
  const std::string home = get("HOME").value_or("");
  const std::string login =
      home + "/.config/gcloud/application_default_credentials.json";
  if (!home.empty() && access(login.c_str(), R_OK) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      kGcsKey, " is environment, but ", kFileVariable,
      " is not set and there is no ", login, "; set ", kFileVariable,
      " to a key file, run `gcloud auth application-default login`, or choose "
      "credentials: instance, anonymous or a file"));
}

absl::StatusOr<std::string> ReadKey(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxKeyFile);
  if (!text.ok()) return Annotate(text.status(), kGcsKey);
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  const auto holds = [&](const char* name, const char* value) {
    const auto found = json.is_object() ? json.find(name) : json.end();
    return found != json.end() && found->is_string() &&
           (value == nullptr || *found == value);
  };
  if (holds("type", "service_account") && holds("private_key", nullptr)) {
    return *text;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      kGcsKey, ": ", path,
      " is not the JSON key file of a service account; set ", kFileVariable,
      " to a file of another kind and choose credentials: environment"));
}

}  // namespace

absl::StatusOr<GcsAccess> ResolveGcsAccess(const v1::Storage::Gcs& gcs,
                                           const GetVariable& get) {
  GcsAccess access;
  access.endpoint = SplitEndpoint(gcs.endpoint());
  if (gcs.credentials() == "anonymous") {
    access.kind = GcsAccess::Kind::kAnonymous;
  } else if (gcs.credentials() == "environment") {
    BALLAST_RETURN_IF_ERROR(CheckEnvironment(get));
  } else if (gcs.credentials() != "instance") {
    access.kind = GcsAccess::Kind::kServiceAccount;
    BALLAST_ASSIGN_OR_RETURN(access.key, ReadKey(gcs.credentials()));
  }
  return access;
}

namespace {

bool Says(absl::string_view message,
          std::initializer_list<absl::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](absl::string_view word) {
    return absl::StrContains(message, word);
  });
}

// The section of the configuration that says how to reach the store of `url`.
absl::string_view GetSection(absl::string_view url) {
  if (absl::StartsWith(url, "gs://")) return "storage.gcs";
  if (absl::StartsWith(url, "abfs://")) return "storage.azure";
  return "storage.s3";
}

}  // namespace

absl::Status StoreFault(absl::string_view action, absl::string_view url,
                        absl::string_view message, bool missing) {
  const auto text = [&](absl::string_view advice) {
    return absl::StrCat(url, ": cannot ", action, ": ", message, advice);
  };
  const absl::string_view section = GetSection(url);
  if (Says(message, {"NO_SUCH_BUCKET", "NoSuchBucket", "ContainerNotFound",
                     "The specified bucket does not exist"})) {
    return absl::NotFoundError(text(absl::StrCat(
        "; is the bucket's name right, and is it at this endpoint (", section,
        ".endpoint)", section == "storage.s3" ? " and region?" : "?")));
  }
  if (missing ||
      Says(message, {"NO_SUCH_KEY", "NoSuchKey", "RESOURCE_NOT_FOUND",
                     "BlobNotFound", "HTTP status 404"})) {
    return absl::NotFoundError(text(""));
  }
  if (Says(message,
           {"ACCESS_DENIED", "AccessDenied", "INVALID_ACCESS_KEY_ID",
            "InvalidAccessKeyId", "SIGNATURE", "SignatureDoesNotMatch",
            "INVALID_CLIENT_TOKEN", "ExpiredToken", "EXPIRED_TOKEN",
            "UNRECOGNIZED_CLIENT", "MISSING_AUTHENTICATION", "HTTP status 403",
            "HTTP status 401",
            // Google's and Azure's.
            "PERMISSION_DENIED", "UNAUTHENTICATED", "AuthenticationFailed",
            "AuthorizationFailure", "AuthorizationPermissionMismatch",
            "NoAuthenticationInformation"})) {
    return absl::UnavailableError(text(absl::StrCat(
        "; the store refuses the credentials: check that the keys that ",
        section,
        ".credentials names belong to this endpoint, have not expired and may "
        "read the bucket")));
  }
  if (Says(message, {"REQUEST_TIME_TOO_SKEWED", "RequestTimeTooSkewed"})) {
    return absl::UnavailableError(text("; set this machine's clock"));
  }
  // libcurl's errors 60 and 77: the certificate, and the file of CAs.
  if (Says(message, {"curlCode: 60", "curlCode: 77"})) {
    return absl::UnavailableError(
        text("; does storage.s3.ca name the CA of the endpoint's certificate, "
             "and the certificate the endpoint's host?"));
  }
  if (Says(message, {"NETWORK_CONNECTION", "curlCode", "HTTP status 50",
                     "CURL error", "get a new connection", "UNAVAILABLE"})) {
    return absl::UnavailableError(text(absl::StrCat(
        "; is the store up, and is ", section, ".endpoint right?")));
  }
  return absl::UnavailableError(text(""));
}

namespace {

bool SaysSomething(absl::string_view value) {
  value = absl::StripAsciiWhitespace(value);
  absl::ConsumePrefix(&value, "W/");
  absl::ConsumePrefix(&value, "\"");
  absl::ConsumeSuffix(&value, "\"");
  return !value.empty();
}

}  // namespace

std::string VersionOfFields(
    absl::Span<const std::pair<std::string, std::string>> fields) {
  for (const char* wanted : {"ETag", "Last-Modified", "updated"}) {
    for (const auto& [name, value] : fields) {
      if (absl::EqualsIgnoreCase(name, wanted) && SaysSomething(value)) {
        return absl::StrCat(name, "=", value);
      }
    }
  }
  return "";
}

}  // namespace ballast
