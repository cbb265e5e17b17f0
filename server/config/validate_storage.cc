#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/config/config_validate.h"
#include "server/config/path_pattern.h"

namespace ballast {
namespace {

void CheckEndpoint(const std::string& endpoint, KeyReport* report) {
  const std::string key = "storage.s3.endpoint";
  if (!report->Has(key) || report->IsFaulty(key)) return;
  absl::string_view rest = endpoint;
  const bool has_scheme = absl::ConsumePrefix(&rest, "http://") ||
                          absl::ConsumePrefix(&rest, "https://");
  if (absl::StrContains(rest, '@')) {
    // The text is not shown: it may hold a password.
    return report->AddFault(
        key,
        "found a user name or password; wanted http://HOST:PORT or "
        "https://HOST:PORT, and the keys where storage.s3.credentials says");
  }
  absl::ConsumeSuffix(&rest, "/");
  if (has_scheme && !rest.empty() && !absl::StrContains(rest, '/')) return;
  report->AddFault(key, absl::StrCat("found ", Shown(endpoint),
                                     "; wanted http://HOST:PORT or "
                                     "https://HOST:PORT"));
}

}  // namespace

void ValidateStorage(const v1::Config& config, KeyReport* report) {
  if (report->IsFaulty("storage")) return;
  CheckEndpoint(config.storage().s3().endpoint(), report);
  if (!config.storage().has_cache() || report->IsFaulty("storage.cache")) {
    return;
  }
  if (!report->Has("storage.cache.dir")) {
    report->AddMissing("storage.cache.dir", "a folder on a local disk");
  } else if (IsStoreUrl(config.storage().cache().dir())) {
    report->AddFault("storage.cache.dir",
                     "found a store; wanted a folder on a local disk");
  }
  if (!report->Has("storage.cache.size")) {
    report->AddMissing("storage.cache.size", "its bound in bytes, as 500GiB");
  }
}

}  // namespace ballast
