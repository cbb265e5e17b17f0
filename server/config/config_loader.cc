#include "server/config/config_loader.h"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/config/config_defaults.h"
#include "server/config/config_validate.h"
#include "server/config/cost_resolution.h"
#include "server/config/field_rules.h"
#include "server/config/key_report.h"
#include "server/config/metadataset.h"
#include "server/config/path_pattern.h"
#include "server/config/yaml_to_proto.h"
#include "server/storage/small_object.h"
#include "server/storage/storage.h"

namespace ballast {
namespace {

// A configuration of a thousand servers takes a tenth of this.
constexpr size_t kMaxFileBytes = size_t{1} << 20;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be opened"));
  }
  std::string text(kMaxFileBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be read"));
  }
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":1: found more than ", kMaxFileBytes,
                     " bytes; wanted a configuration"));
  }
  return text;
}

// The result is absolute, so that a resolved path stays valid.
std::string DirectoryOf(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  const std::string whole = error ? path : absolute.string();
  const size_t slash = whole.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : whole.substr(0, slash);
}

// Reads files, and objects of the stores that `settings` describes.
ReadText ReaderOf(const v1::Storage& settings) {
  return [&settings](const std::string& path,
                     size_t most) -> absl::StatusOr<std::string> {
    if (!IsStoreUrl(path)) return ReadSmallFile(path, most);
    // The process's storage may serve another configuration, so this is a
    // second one. Its ranges are read once: a cache would not pay.
    v1::Storage without_cache = settings;
    without_cache.clear_cache();
    Storage storage;
    BALLAST_RETURN_IF_ERROR(storage.Configure(without_cache));
    return ReadSmallObject(&storage, path, most);
  };
}

}  // namespace

absl::StatusOr<LoadedConfig> LoadConfig(
    const std::string& path, const std::vector<std::string>& listen) {
  BALLAST_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseConfig(text, path, DirectoryOf(path), listen);
}

absl::StatusOr<LoadedConfig> ParseConfig(
    absl::string_view yaml, absl::string_view name, absl::string_view directory,
    const std::vector<std::string>& listen) {
  LoadedConfig loaded;
  loaded.directory = std::string(directory);
  KeyReport report;
  ReadYaml(yaml, ConfigFieldRules(), &loaded.config, &report);
  ApplyDefaults(report, &loaded.config);
  if (!listen.empty()) loaded.config.mutable_serve()->clear_listen();
  ResolvePaths(directory, &loaded.config);
  ResolveModelCosts(loaded.config.mutable_balance(), &report);
  ValidateConfig(loaded.config, &report);
  BALLAST_RETURN_IF_ERROR(report.ToStatus(name));
  ExpandMetadatasets(directory, ReaderOf(loaded.config.storage()),
                     &loaded.config, &report);
  BALLAST_RETURN_IF_ERROR(report.ToStatus(name));
  if (!listen.empty()) {
    loaded.config.mutable_serve()->mutable_listen()->Assign(listen.begin(),
                                                            listen.end());
  }
  return loaded;
}

}  // namespace ballast
