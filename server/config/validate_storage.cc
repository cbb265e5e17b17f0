#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/config/config_validate.h"
#include "server/config/path_pattern.h"

namespace ballast {
namespace {

// Checks the endpoint in `section`, "storage.s3".
void CheckEndpoint(const std::string& section, const std::string& endpoint,
                   KeyReport* report) {
  const std::string key = absl::StrCat(section, ".endpoint");
  if (!report->Has(key) || report->IsFaulty(key)) return;
  absl::string_view rest = endpoint;
  const bool has_scheme = absl::ConsumePrefix(&rest, "http://") ||
                          absl::ConsumePrefix(&rest, "https://");
  if (absl::StrContains(rest, '@')) {
    // The text is not shown: it may hold a password.
    return report->AddFault(
        key, absl::StrCat(
                 "found a user name or password; wanted http://HOST:PORT or "
                 "https://HOST:PORT, and the keys where ",
                 section, ".credentials says"));
  }
  absl::ConsumeSuffix(&rest, "/");
  if (has_scheme && !rest.empty() && !absl::StrContains(rest, '/')) return;
  report->AddFault(key, absl::StrCat("found ", Shown(endpoint),
                                     "; wanted http://HOST:PORT or "
                                     "https://HOST:PORT"));
}

// Letters and digits, as Azure wants: anything else would change an address.
void CheckAccount(const std::string& account, KeyReport* report) {
  const std::string key = "storage.azure.account";
  if (!report->Has(key) || report->IsFaulty(key)) return;
  const bool fits = account.size() >= 3 && account.size() <= 24 &&
                    std::all_of(account.begin(), account.end(), [](char c) {
                      return absl::ascii_islower(c) || absl::ascii_isdigit(c);
                    });
  if (fits) return;
  report->AddFault(key, absl::StrCat("found ", Shown(account),
                                     "; wanted 3 to 24 small letters and "
                                     "digits"));
}

}  // namespace

void ValidateStorage(const v1::Config& config, KeyReport* report) {
  if (report->IsFaulty("storage")) return;
  const v1::Storage& storage = config.storage();
  CheckEndpoint("storage.s3", storage.s3().endpoint(), report);
  CheckEndpoint("storage.gcs", storage.gcs().endpoint(), report);
  CheckEndpoint("storage.azure", storage.azure().endpoint(), report);
  CheckAccount(storage.azure().account(), report);
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
