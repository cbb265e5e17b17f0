#include "server/storage/store_answers.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace ballast {
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
