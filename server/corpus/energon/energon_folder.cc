#include "server/corpus/energon/energon_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/config/metadataset.h"
#include "server/config/path_pattern.h"
#include "server/config/yaml_file.h"
#include "server/corpus/data_path.h"
#include "server/corpus/file.h"
#include "server/storage/small_object.h"
#include "server/storage/storage.h"

namespace ballast {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;
constexpr size_t kMostShards = 1'000'000;

absl::Status Fault(absl::string_view reason) {
  return absl::InvalidArgumentError(reason);
}

// The shards and their counts, in order: a shard's place is its id.
absl::StatusOr<absl::flat_hash_map<std::string, EnergonShard>> ParseInfo(
    const std::string& text) {
  BALLAST_ASSIGN_OR_RETURN(const YAML::Node root, ParseYaml(text));
  const YAML::Node counts = FindKey(root, "shard_counts");
  if (!counts.IsDefined() || !counts.IsMap()) {
    return Fault("no map shard_counts");
  }
  absl::flat_hash_map<std::string, EnergonShard> shards;
  for (const auto& entry : counts) {
    EnergonShard shard;
    shard.id = shards.size();
    BALLAST_ASSIGN_OR_RETURN(shard.name, TextOf(entry.first, "shard_counts"));
    BALLAST_ASSIGN_OR_RETURN(
        const std::string count,
        TextOf(entry.second, absl::StrCat("shard_counts.", shard.name)));
    if (!absl::SimpleAtoi(count, &shard.count)) {
      return Fault(absl::StrCat("shard_counts.", shard.name, ": found ",
                                Printable(count), "; wanted a number"));
    }
    if (shards.size() == kMostShards) {
      return Fault(absl::StrCat("over ", kMostShards, " shards"));
    }
    const std::string name = shard.name;
    if (!shards.emplace(name, std::move(shard)).second) {
      return Fault(absl::StrCat("shard_counts: ", name, " twice"));
    }
  }
  return shards;
}

absl::StatusOr<std::vector<std::string>> ExpandAll(const YAML::Node& list,
                                                   absl::string_view key) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<std::string> patterns,
                           TextsOf(list, key, kMostShards));
  std::vector<std::string> names;
  for (const std::string& pattern : patterns) {
    absl::StatusOr<std::vector<std::string>> more = ExpandBraces(pattern);
    if (!more.ok()) return Annotate(more.status(), key);
    if (more->size() > kMostShards - names.size()) {
      return Fault(absl::StrCat(key, ": over ", kMostShards, " entries"));
    }
    names.insert(names.end(), more->begin(), more->end());
  }
  return names;
}

absl::Status ShardName(absl::string_view name) {
  BALLAST_RETURN_IF_ERROR(CheckDataPath(name));
  if (absl::EndsWith(name, ".tar")) return absl::OkStatus();
  return Fault(absl::StrCat(
      name,
      ": wanted a file .tar; compressed ones have no offsets to read at: "
      "unpack them to .tar and run `energon prepare` again"));
}

absl::Status ParseSplit(const std::string& text, absl::string_view part,
                        EnergonFolder* folder,
                        absl::flat_hash_map<std::string, EnergonShard> known) {
  BALLAST_ASSIGN_OR_RETURN(const YAML::Node root, ParseYaml(text));
  const YAML::Node parts = FindKey(root, "split_parts");
  BALLAST_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           KeysOf(parts, "split_parts", 1000));
  const YAML::Node list = FindKey(parts, std::string(part));
  if (!list.IsDefined()) {
    return absl::NotFoundError(absl::StrCat(
        "split_parts: no ", part, "; it has ", absl::StrJoin(names, ", "),
        ": name one with energon.split_part"));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<std::string> shards,
                           ExpandAll(list, absl::StrCat("split_parts.", part)));
  if (const YAML::Node exclude = FindKey(root, "exclude");
      exclude.IsDefined() && !exclude.IsNull()) {
    BALLAST_ASSIGN_OR_RETURN(const std::vector<std::string> excluded,
                             ExpandAll(exclude, "exclude"));
    folder->excluded.insert(excluded.begin(), excluded.end());
  }
  absl::flat_hash_set<std::string> seen;
  for (const std::string& name : shards) {
    if (folder->excluded.contains(name)) continue;
    BALLAST_RETURN_IF_ERROR(ShardName(name));
    if (!seen.insert(name).second) {
      return Fault(absl::StrCat("split_parts.", part, ": ", name, " twice"));
    }
    const auto found = known.find(name);
    if (found == known.end()) {
      return Fault(absl::StrCat(
          "split_parts.", part, ": ", name,
          " is not in shard_counts of .info; run `energon prepare` again"));
    }
    folder->shards.push_back(found->second);
  }
  if (!folder->shards.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("split_parts.", part, ": no shards"));
}

absl::StatusOr<std::string> ReadMeta(const std::string& path) {
  if (!IsStoreUrl(path)) return ReadSmallFile(path, kMostBytes);
  return ReadSmallObject(&Storage::OfProcess(), path, kMostBytes);
}

// Whether there is a file; of a store the present version.
absl::StatusOr<bool> Exists(const std::string& path) {
  if (!IsStoreUrl(path)) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
  }
  const absl::Status status = Storage::OfProcess().Stamp(path).status();
  if (absl::IsNotFound(status)) return false;
  if (!status.ok()) return status;
  return true;
}

// The first of `paths` that is there; the last if none is.
absl::StatusOr<std::string> FirstOf(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    BALLAST_ASSIGN_OR_RETURN(const bool exists, Exists(path));
    if (exists) return path;
  }
  return paths.back();
}

}  // namespace

std::string EnergonFolder::ShardPath(const EnergonShard& shard) const {
  return absl::StrCat(folder, "/", shard.name);
}

std::string EnergonFolder::IndexPath() const {
  return absl::StrCat(folder, "/.nv-meta/index.sqlite");
}

std::string EnergonFolder::Key() const {
  std::vector<std::string> sorted(excluded.begin(), excluded.end());
  std::sort(sorted.begin(), sorted.end());
  return absl::StrCat(EnergonFieldsKey(fields), "\n",
                      absl::StrJoin(sorted, "\n"));
}

absl::StatusOr<EnergonFolder> ParseEnergonFolder(const EnergonTexts& texts,
                                                 absl::string_view split_part,
                                                 bool crude) {
  EnergonFolder folder;
  auto known = ParseInfo(texts.info);
  if (!known.ok()) return Annotate(known.status(), ".info");
  BALLAST_RETURN_IF_ERROR(
      Annotate(ParseSplit(texts.split, split_part, &folder, *std::move(known)),
               "split"));
  auto fields = ParseDatasetYaml(texts.dataset, crude);
  if (!fields.ok()) return Annotate(fields.status(), "dataset");
  folder.fields = *std::move(fields);
  return folder;
}

absl::StatusOr<EnergonFolder> OpenEnergonFolder(const v1::Source& source,
                                                absl::string_view directory) {
  // "s3://bucket/nv/" is "s3://bucket/nv".
  const std::string folder(
      absl::StripSuffix(ResolvePath(directory, source.path()),
                        IsStoreUrl(source.path()) ? "/" : ""));
  const std::string meta = absl::StrCat(folder, "/.nv-meta/");
  BALLAST_ASSIGN_OR_RETURN(const std::string info,
                           FirstOf({absl::StrCat(meta, ".info.json"),
                                    absl::StrCat(meta, ".info.yaml")}));
  BALLAST_ASSIGN_OR_RETURN(const bool is_prepared,
                           Exists(IsStoreUrl(folder) ? info : meta));
  if (!is_prepared) {
    return absl::NotFoundError(absl::StrCat(
        folder,
        ": no folder .nv-meta, which `energon prepare` makes; tars "
        "without one are read with format: webdataset"));
  }
  EnergonTexts texts;
  BALLAST_ASSIGN_OR_RETURN(texts.info, ReadMeta(info));
  const v1::Source::Energon& options = source.energon();
  std::string split = absl::StrCat(meta, options.split_config());
  if (options.split_config().empty()) {
    BALLAST_ASSIGN_OR_RETURN(split,
                             FirstOf({absl::StrCat(meta, "split.yaml"),
                                      absl::StrCat(meta, "split.json")}));
  }
  BALLAST_ASSIGN_OR_RETURN(texts.split, ReadMeta(split));
  BALLAST_ASSIGN_OR_RETURN(
      texts.dataset,
      ReadMeta(absl::StrCat(meta, options.dataset_config().empty()
                                      ? "dataset.yaml"
                                      : options.dataset_config())));
  absl::StatusOr<EnergonFolder> result = ParseEnergonFolder(
      texts, EnergonSplitPart(source),
      options.crude() == v1::Source::Energon::CRUDE_WEBDATASET);
  if (!result.ok()) return Annotate(result.status(), meta);
  result->folder = folder;
  return result;
}

}  // namespace ballast
