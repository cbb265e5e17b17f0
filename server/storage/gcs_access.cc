#include "server/storage/gcs_access.h"

#include <unistd.h>

#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/small_file.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr char kKey[] = "storage.gcs.credentials";
constexpr char kFileVariable[] = "GOOGLE_APPLICATION_CREDENTIALS";
constexpr size_t kMaxKeyFile = 1 << 20;

// Where Google's libraries look.
absl::Status CheckEnvironment(const GetVariable& get) {
  const std::string named = get(kFileVariable).value_or("");
  if (!named.empty()) {
    return Annotate(ReadSmallFile(named, kMaxKeyFile).status(),
                    absl::StrCat(kKey, ": ", kFileVariable));
  }
  const std::string home = get("HOME").value_or("");
  const std::string login =
      home + "/.config/gcloud/application_default_credentials.json";
  if (!home.empty() && access(login.c_str(), R_OK) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      kKey, " is environment, but ", kFileVariable,
      " is not set and there is no ", login, "; set ", kFileVariable,
      " to a key file, run `gcloud auth application-default login`, or choose "
      "credentials: instance, anonymous or a file"));
}

absl::StatusOr<std::string> ReadKey(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxKeyFile);
  if (!text.ok()) return Annotate(text.status(), kKey);
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
      kKey, ": ", path, " is not the JSON key file of a service account; set ",
      kFileVariable,
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

}  // namespace ballast
