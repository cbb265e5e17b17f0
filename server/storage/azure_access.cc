#include "server/storage/azure_access.h"

#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/storage/store_endpoint.h"

namespace ballast {
namespace {

constexpr char kKey[] = "storage.azure.credentials";
constexpr size_t kMaxFile = 1 << 20;

// The account stands in the path behind such an endpoint.
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
      kKey,
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
  if (!text.ok()) return Annotate(text.status(), kKey);
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

}  // namespace ballast
