#include "server/config/metadataset.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/files/path_pattern.h"
#include "server/settings/yaml.h"

namespace ballast {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr size_t kMaxFolders = 10'000;
constexpr size_t kMaxKeys = 1000;
// Metadatasets inside one another.
constexpr int kMaxDepth = 16;

bool IsMetadataset(absl::string_view path) {
  return absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml");
}

// What would do instead of a key that is not done here; nullptr for others.
const char* GetReplacement(absl::string_view key) {
  static const auto* const reasons = new std::map<absl::string_view,
                                                  const char*>{
      {"join",
       "samples are not joined here; write the joined samples as one folder"},
      {"joiner", "joiners are Python and cannot run here"},
      {"blend_epochized",
       "write `blend`, with weights of repetitions times samples"},
      {"subset",
       "name the shards to read in a part of split.yaml of their own"},
      {"aux",
       "auxiliary data are for cookers, which are Python and cannot run "
       "here"},
  };
  const auto found = reasons->find(key);
  return found == reasons->end() ? nullptr : found->second;
}

// The object `path` relative to the folder of the object `url`. Steps of `..`
// stay in its bucket.
std::string BesideObject(const std::string& url, absl::string_view path) {
  const size_t root = url.find('/', url.find("://") + 3);
  if (root == std::string::npos) return absl::StrCat(url, "/", path);
  const std::string whole =
      absl::StrCat(url.substr(root, url.rfind('/') - root), "/", path);
  std::vector<absl::string_view> names;
  for (const absl::string_view name :
       absl::StrSplit(whole, '/', absl::SkipEmpty())) {
    if (name == ".") continue;
    if (name != "..") {
      names.push_back(name);
    } else if (!names.empty()) {
      names.pop_back();
    }
  }
  return absl::StrCat(url.substr(0, root), "/", absl::StrJoin(names, "/"));
}

// `path` as the metadataset `file` names it.
std::string NamedBy(const std::string& file, const std::string& path) {
  if (absl::StrContains(path, "://")) return path;
  if (IsStoreUrl(file) && !absl::StartsWith(path, "/")) {
    return BesideObject(file, path);
  }
  return ResolvePath(file.substr(0, file.rfind('/') + 1), path);
}

absl::Status TooMany() {
  return absl::InvalidArgumentError(
      absl::StrCat("over ", kMaxFolders, " datasets"));
}

class MetadatasetReader {
 public:
  explicit MetadatasetReader(const ReadText& read) : read_(read) {}

  // Appends the folders of `path`, whose shares sum to `weight`.
  absl::Status Read(const std::string& path, const std::string& split_part,
                    double weight, int depth) {
    if (depth > kMaxDepth) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": more than ", kMaxDepth, " metadatasets inside one another"));
    }
    BALLAST_ASSIGN_OR_RETURN(const std::string text, read_(path, kMaxBytes));
    const absl::StatusOr<YAML::Node> root = ParseYaml(text);
    if (!root.ok()) return Annotate(root.status(), path);
    return Annotate(ReadRoot(*root, path, split_part, weight, depth), path);
  }

  std::vector<BlendedPath> folders;

 private:
  absl::Status ReadRoot(const YAML::Node& root, const std::string& path,
                        const std::string& split_part, double weight,
                        int depth) {
    const YAML::Node splits = FindKey(root, "splits");
    BALLAST_RETURN_IF_ERROR(GetKeys(splits, "splits", kMaxKeys).status());
    const std::string key = absl::StrCat("splits.", split_part);
    const YAML::Node split = FindKey(splits, split_part);
    if (!split.IsDefined() || !split.IsMap()) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": missing; wanted what the split blends"));
    }
    // Version 1 calls the list `datasets`, version 2 `blend`.
    for (const char* name : {"blend", "datasets"}) {
      const YAML::Node list = FindKey(split, name);
      if (!list.IsDefined()) continue;
      BALLAST_RETURN_IF_ERROR(CheckKeys(split, key, {name}));
      return ReadBlend(list, absl::StrCat(key, ".", name), path, split_part,
                       weight, depth);
    }
    return ReadReference(split, key, path, split_part, weight, depth);
  }

  absl::Status ReadBlend(const YAML::Node& list, const std::string& key,
                         const std::string& path, const std::string& split_part,
                         double weight, int depth) {
    if (!list.IsSequence() || list.size() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": wanted a list of datasets"));
    }
    if (list.size() > kMaxFolders) return TooMany();
    std::vector<double> weights;
    double sum = 0;
    for (const auto& entry : list) {
      double each = 1;
      if (const YAML::Node node = FindKey(entry, "weight"); node.IsDefined()) {
        const std::string name =
            absl::StrCat(key, "[", weights.size(), "].weight");
        BALLAST_ASSIGN_OR_RETURN(const std::string text, GetText(node, name));
        const std::optional<double> number = ParseReal(text);
        if (!number.has_value() || *number < 0) {
          return absl::InvalidArgumentError(absl::StrCat(
              name, ": found ", Shown(text), "; wanted a number of 0 or more"));
        }
        each = *number;
      }
      weights.push_back(each);
      sum += each;
    }
    if (!(sum > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": the weights sum to 0"));
    }
    size_t i = 0;
    for (const auto& entry : list) {
      BALLAST_RETURN_IF_ERROR(
          ReadReference(entry, absl::StrCat(key, "[", i, "]"), path, split_part,
                        weight * weights[i] / sum, depth));
      ++i;
    }
    return absl::OkStatus();
  }

  absl::Status ReadReference(const YAML::Node& node, const std::string& key,
                             const std::string& path,
                             const std::string& split_part, double weight,
                             int depth) {
    BALLAST_RETURN_IF_ERROR(CheckKeys(
        node, key,
        {"path", "weight", "split_part", "split_config", "dataset_config",
         "subflavor", "subflavors", "shuffle_over_epochs_multiplier"}));
    BlendedPath folder;
    const auto read = [&](const char* name, std::string* out) -> absl::Status {
      const YAML::Node value = FindKey(node, name);
      if (!value.IsDefined() || value.IsNull()) return absl::OkStatus();
      BALLAST_ASSIGN_OR_RETURN(*out,
                               GetText(value, absl::StrCat(key, ".", name)));
      return absl::OkStatus();
    };
    BALLAST_RETURN_IF_ERROR(read("path", &folder.path));
    if (folder.path.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ".path: missing; wanted a folder with .nv-meta"));
    }
    folder.split_part = split_part;
    BALLAST_RETURN_IF_ERROR(read("split_part", &folder.split_part));
    BALLAST_RETURN_IF_ERROR(read("split_config", &folder.split_config));
    BALLAST_RETURN_IF_ERROR(read("dataset_config", &folder.dataset_config));
    if (absl::EndsWith(folder.path, ".jsonl")) {
      return absl::UnimplementedError(absl::StrCat(
          key, ".path: ", folder.path,
          " is for cookers, which are Python and cannot run here; name it as a "
          "source of format jsonl"));
    }
    folder.path = NamedBy(path, folder.path);
    if (IsMetadataset(folder.path)) {
      return Read(folder.path, folder.split_part, weight, depth + 1);
    }
    if (folders.size() == kMaxFolders) return TooMany();
    folder.weight = weight;
    folders.push_back(std::move(folder));
    return absl::OkStatus();
  }

  // Refuses keys other than `known`.
  static absl::Status CheckKeys(const YAML::Node& node, absl::string_view key,
                                std::initializer_list<const char*> known) {
    BALLAST_ASSIGN_OR_RETURN(const std::vector<std::string> keys,
                             GetKeys(node, key, kMaxKeys));
    for (const std::string& each : keys) {
      if (const char* instead = GetReplacement(each)) {
        return absl::UnimplementedError(
            absl::StrCat(key, ".", each, ": not done here: ", instead));
      }
      if (each == "__module__" || each == "__class__" ||
          std::find(known.begin(), known.end(), each) != known.end()) {
        continue;
      }
      return absl::InvalidArgumentError(
          absl::StrCat(key, ".", Shown(each), ": a key that is not known"));
    }
    return absl::OkStatus();
  }

  const ReadText& read_;
};

// The last name of a path, of letters that a source's name may have.
std::string NameOfPath(absl::string_view path) {
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  std::string name(path.substr(path.rfind('/') + 1));
  for (char& c : name) {
    if (!absl::ascii_isalnum(c) && c != '_' && c != '-') c = '_';
  }
  return name;
}

}  // namespace

std::string EnergonSplitPart(const v1::Source& source) {
  if (!source.energon().split_part().empty()) {
    return source.energon().split_part();
  }
  switch (source.split()) {
    case v1::SPLIT_VALID:
      return "val";
    case v1::SPLIT_TEST:
      return "test";
    default:
      return "train";
  }
}

absl::StatusOr<std::vector<BlendedPath>> ReadMetadataset(
    const std::string& path, const std::string& split_part,
    const ReadText& read) {
  MetadatasetReader reader(read);
  BALLAST_RETURN_IF_ERROR(reader.Read(path, split_part, 1, 1));
  return std::move(reader.folders);
}

absl::StatusOr<std::vector<BlendedPath>> ParseTokenBlend(
    absl::string_view blend) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(blend, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty());
  constexpr absl::string_view kWanted =
      "wanted a weight and a prefix in turn, as `0.3 wiki/text 0.7 books/text`";
  if (words.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found no prefix; ", kWanted));
  }
  if (words.size() > 2 * kMaxFolders) return TooMany();
  const bool has_weights = std::any_of(
      words.begin(), words.end(),
      [](absl::string_view word) { return ParseReal(word).has_value(); });
  if (!has_weights) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found prefixes without weights; ", kWanted,
        ". Megatron then blends by sizes, which is one source: path: \"{",
        absl::StrJoin(words, ","), "}\""));
  }
  std::vector<BlendedPath> prefixes;
  double sum = 0;
  for (size_t i = 0; i < words.size(); i += 2) {
    const std::string entry = absl::StrCat("entry ", i / 2, ": ");
    const std::optional<double> weight = ParseReal(words[i]);
    if (!weight.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          entry, "found ", Shown(words[i]), " for a weight; ", kWanted));
    }
    if (!(*weight > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry, "found the weight ", words[i],
                       "; wanted one above 0: leave the prefix out"));
    }
    if (i + 1 == words.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          entry, "found the weight ", words[i], " alone; ", kWanted));
    }
    if (const auto names = ExpandBraces(words[i + 1]); !names.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry, "found ", Shown(words[i + 1]),
                       "; wanted a path: ", names.status().message()));
    }
    BlendedPath& prefix = prefixes.emplace_back();
    prefix.path = std::string(words[i + 1]);
    prefix.weight = *weight;
    sum += *weight;
  }
  for (BlendedPath& prefix : prefixes) prefix.weight /= sum;
  return prefixes;
}

void ExpandBlends(absl::string_view directory, const ReadText& read,
                  v1::Config* config, KeyReport* report) {
  absl::flat_hash_set<std::string> names;
  for (const v1::Source& source : config->sources()) {
    names.insert(source.name());
  }
  google::protobuf::RepeatedPtrField<v1::Source> expanded;
  for (int i = 0; i < config->sources_size(); ++i) {
    const v1::Source& source = config->sources(i);
    const bool is_energon = source.format() == v1::Source::FORMAT_ENERGON &&
                            IsMetadataset(source.path());
    if (!is_energon && source.blend().empty()) {
      *expanded.Add() = source;
      continue;
    }
    const auto paths =
        is_energon ? ReadMetadataset(ResolvePath(directory, source.path()),
                                     EnergonSplitPart(source), read)
                   : ParseTokenBlend(source.blend());
    if (!paths.ok()) {
      report->AddFault(
          ChildKey(ItemKey("sources", i), is_energon ? "path" : "blend"),
          std::string(paths.status().message()));
      continue;
    }
    std::vector<std::pair<std::string, double>> parts;
    for (const BlendedPath& path : *paths) {
      v1::Source& part = *expanded.Add();
      part = source;
      const std::string stem =
          absl::StrCat(source.name(), "-", NameOfPath(path.path));
      std::string name = stem;
      for (int twin = 2; !names.insert(name).second; ++twin) {
        name = absl::StrCat(stem, "-", twin);
      }
      part.set_name(name);
      part.set_path(path.path);
      part.clear_blend();
      part.set_weight(source.weight() * path.weight);
      absl::string_view whole = source.index();
      absl::ConsumeSuffix(&whole, ".index");
      const bool is_pattern = absl::ConsumeSuffix(&whole, "-*");
      part.set_index(absl::StrCat(whole, name.substr(source.name().size()),
                                  is_pattern ? "-*.index" : ".index"));
      if (is_energon) {
        v1::Source::Energon& energon = *part.mutable_energon();
        energon.set_split_part(path.split_part);
        energon.set_split_config(path.split_config);
        energon.set_dataset_config(path.dataset_config);
      }
      parts.emplace_back(name, path.weight);
    }
    for (auto& change : *config->mutable_order()->mutable_mixture_changes()) {
      auto& weights = *change.mutable_weights();
      const auto whole = weights.find(source.name());
      if (whole == weights.end()) continue;
      const double weight = whole->second;
      weights.erase(source.name());
      for (const auto& [name, part] : parts) weights[name] = weight * part;
    }
  }
  config->mutable_sources()->Swap(&expanded);
}

}  // namespace ballast
