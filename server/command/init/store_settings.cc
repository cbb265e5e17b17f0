#include "server/command/init/store_settings.h"

#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/config/config_loader.h"

namespace ballast {
namespace {

// A whole configuration, but for the section `storage`.
constexpr char kAnyJob[] =
    "sources: [{name: any, format: webdataset, path: any.tar}]\n"
    "batch: {global: 1, micro: 1, max_tokens: 64}\n"
    "topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}\n";

}  // namespace

std::string StoreSettingsText(const SeenStore& store) {
  const std::pair<const char*, const std::string&> settings[] = {
      {"account", store.account},
      {"endpoint", store.endpoint},
      {"region", store.region},
      {"credentials", store.credentials},
      {"ca", store.ca}};
  std::vector<std::string> given;
  for (const auto& [key, value] : settings) {
    if (value.empty()) continue;
    // A JSON string is a YAML string.
    given.push_back(absl::StrCat(
        key, ": ",
        nlohmann::json(value).dump(-1, ' ', false,
                                   nlohmann::json::error_handler_t::replace)));
  }
  return given.empty() ? ""
                       : absl::StrCat(store.section, ": {",
                                      absl::StrJoin(given, ", "), "}");
}

absl::StatusOr<v1::Storage> StoreSettings(const SeenStore& store,
                                          const std::string& config_folder) {
  const std::string section = StoreSettingsText(store);
  absl::StatusOr<LoadedConfig> config = ParseConfig(
      section.empty() ? kAnyJob
                      : absl::StrCat(kAnyJob, "storage: {", section, "}"),
      absl::StrCat("the options --", store.section, "-…"), config_folder);
  if (!config.ok()) return config.status();
  return std::move(*config->config.mutable_storage());
}

}  // namespace ballast
