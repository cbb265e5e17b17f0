#include "server/storage/store_url.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ballast {

absl::StatusOr<StoreUrl> ParseStoreUrl(absl::string_view url) {
  const auto refused = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("\"", url, "\" ", why));
  };
  const size_t end = url.find("://");
  if (end == absl::string_view::npos) return refused("is not SCHEME://…");
  StoreUrl parsed;
  parsed.scheme = std::string(url.substr(0, end));
  if (parsed.scheme != "s3" && parsed.scheme != "gs" &&
      parsed.scheme != "abfs" && parsed.scheme != "file") {
    return refused(
        "has an unknown scheme; wanted s3://, gs://, abfs:// or file://");
  }
  const absl::string_view rest = url.substr(end + 3);
  const bool is_file = parsed.scheme == "file";
  if (is_file && !absl::StartsWith(rest, "/")) {
    return refused("is not absolute; wanted file:///FOLDER/NAME");
  }
  const absl::string_view path = is_file ? rest.substr(1) : rest;
  std::vector<absl::string_view> names = absl::StrSplit(path, '/');
  // A slash at the end names a folder.
  if (names.size() > 1 && names.back().empty()) names.pop_back();
  for (const absl::string_view name : names) {
    if (!name.empty() && name != "." && name != "..") continue;
    return refused("holds an empty name, \".\" or \"..\"");
  }
  if (parsed.scheme == "abfs" && absl::StrContains(names[0], '@')) {
    return absl::InvalidArgumentError(
        "abfs://… holds an account or a password; wanted abfs://CONTAINER/KEY, "
        "the account as storage.azure.account, and keys where "
        "storage.azure.credentials says");
  }
  if (!is_file && absl::StrContains(names[0], '@')) {
    return absl::InvalidArgumentError(absl::StrCat(
        parsed.scheme,
        "://… holds a user name or password; keys belong where "
        "storage.",
        parsed.scheme == "gs" ? "gcs" : "s3", ".credentials says"));
  }
  parsed.path = std::string(rest);
  if (absl::EndsWith(parsed.path, "/") && parsed.path.size() > 1) {
    parsed.path.pop_back();
  }
  return parsed;
}

}  // namespace ballast
