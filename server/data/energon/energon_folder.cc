#include "server/data/energon/energon_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/config/metadataset.h"
#include "server/files/file.h"
#include "server/files/path_pattern.h"
#include "server/files/storage.h"
#include "server/sample/data_fault.h"
#include "server/settings/yaml.h"

namespace ballast {
namespace {

constexpr size_t kMaxFields = 100;

// A sample type of Energon whose samples are conversations.
struct KnownType {
  absl::string_view name;    // of the sample's class
  absl::string_view legacy;  // of the class of older folders
  EnergonType type;
  std::vector<absl::string_view> required;
  // Of no use to a conversation, or used if they are there.
  std::vector<absl::string_view> optional;
};

const std::vector<KnownType>& KnownTypes() {
  static const auto* const types = new std::vector<KnownType>{
      {"CaptioningSample",
       "CaptioningWebdataset",
       EnergonType::kCaptioning,
       {"image", "caption"},
       {}},
      {"OCRSample",
       "OCRWebdataset",
       EnergonType::kOcr,
       {"image", "text"},
       {"block_boxes", "block_classes", "block_text", "lines_boxes",
        "lines_text", "words_boxes", "words_text", "chars_boxes",
        "chars_text"}},
      {"TextSample", "TextWebdataset", EnergonType::kText, {"text"}, {}},
      {"VQASample",
       "VQAWebdataset",
       EnergonType::kVqa,
       {"image", "context", "answers"},
       {}},
      {"VidQASample",
       "VidQAWebdataset",
       EnergonType::kVidQa,
       {"video", "context", "answers"},
       {}},
      {"ChatMLSample",
       "ChatMLWebdataset",
       EnergonType::kChatMl,
       {"conversation"},
       {"imgs", "videos", "audio"}},
  };
  return *types;
}

bool Contains(const std::vector<absl::string_view>& names,
              absl::string_view name) {
  for (const absl::string_view each : names) {
    if (each == name) return true;
  }
  return false;
}

bool IsMediaField(absl::string_view field) {
  return field == "image" || field == "video" || field == "imgs" ||
         field == "videos" || field == "audio";
}

std::string GetExtension(absl::string_view part) {
  const size_t dot = part.rfind('.');
  return absl::AsciiStrToLower(dot == part.npos ? part : part.substr(dot + 1));
}

// Refuses ways that lead to something else than a text.
absl::Status CheckTextField(absl::string_view field,
                            const std::vector<EnergonAccess>& ways) {
  for (const EnergonAccess& way : ways) {
    const std::string extension = GetExtension(way.part);
    const bool json = extension == "json" || extension == "jsn";
    if (field == "conversation") {
      if (json && way.keys.empty()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("field_map.conversation: found ", way.part,
                       way.keys.empty() ? "" : "[...]",
                       "; wanted a part that is the JSON of the turns: json"));
    }
    const bool text =
        extension == "txt" || extension == "text" || extension == "transcript";
    if ((json && !way.keys.empty()) || (text && way.keys.empty())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("field_map.", field, ": found ", way.part,
                     way.keys.empty() ? "" : "[...]",
                     "; wanted a text: a part .txt, or json[KEY]..."));
  }
  return absl::OkStatus();
}

// The class that the file names, of `sample_type` or, in older folders, at the
// top.
absl::StatusOr<std::string> GetClass(const YAML::Node& root) {
  YAML::Node type = FindKey(root, "sample_type");
  if (!type.IsDefined()) type = root;
  const YAML::Node name = FindKey(type, "__class__");
  if (!name.IsDefined()) {
    return absl::InvalidArgumentError(
        "no sample_type with a __class__; is this a dataset.yaml of Energon?");
  }
  const YAML::Node package = FindKey(type, "__module__");
  const std::string module = package.IsDefined() && package.IsScalar()
                                 ? package.Scalar()
                                 : "megatron.energon";
  BALLAST_ASSIGN_OR_RETURN(std::string found, GetText(name, "__class__"));
  if (module == "megatron.energon" ||
      absl::StartsWith(module, "megatron.energon.")) {
    return found;
  }
  // Megatron-Bridge's, and of those from whom it has it: under several modules.
  if (found == "ChatMLWebdataset" || found == "ChatMLSample") return found;
  return absl::StrCat(module, ".", found);
}

absl::Status RefuseClass(absl::string_view name) {
  if (name == "CrudeWebdataset" || name == "CrudeSample") {
    return absl::UnimplementedError(absl::StrCat(
        name,
        ": its samples are made by a cooker, which is Python: write it as a "
        "recipe (docs/recipes.md). If each sample is KEY.json or KEY.txt with "
        "its images beside it, `energon: {crude: webdataset}` on the source "
        "reads it so; or give the folder a sample_type and field_map"));
  }
  return absl::UnimplementedError(absl::StrCat(
      "sample_type ", name,
      " makes no conversation that is known here; wanted CaptioningSample, "
      "OCRSample, TextSample, VQASample, VidQASample or ChatMLWebdataset. "
      "Make conversations of its samples by a recipe (docs/recipes.md)"));
}

}  // namespace

std::vector<EnergonAccess> ParseEnergonAccess(absl::string_view entry) {
  std::vector<EnergonAccess> ways;
  for (absl::string_view option : absl::StrSplit(entry, ',')) {
    EnergonAccess way;
    const size_t bracket = option.find('[');
    way.part = std::string(option.substr(0, bracket));
    bool sound = !way.part.empty() && way.part.find(']') == way.part.npos;
    absl::string_view left =
        bracket == option.npos ? "" : option.substr(bracket);
    while (sound && !left.empty()) {
      const size_t end = left.find(']');
      sound = left[0] == '[' && end != left.npos && end > 1;
      if (!sound) break;
      const absl::string_view key = left.substr(1, end - 1);
      sound = key.find('[') == key.npos;
      way.keys.emplace_back(key);
      left.remove_prefix(end + 1);
    }
    if (!sound) way = {std::string(entry), {}};
    ways.push_back(std::move(way));
  }
  return ways;
}

absl::StatusOr<EnergonFields> ParseDatasetYaml(const std::string& yaml,
                                               bool crude) {
  BALLAST_ASSIGN_OR_RETURN(const YAML::Node root, ParseYaml(yaml));
  BALLAST_ASSIGN_OR_RETURN(const std::string name, GetClass(root));
  EnergonFields result;
  const bool is_crude = name == "CrudeWebdataset" || name == "CrudeSample";
  if (is_crude && crude) return result;
  const KnownType* known = nullptr;
  for (const KnownType& each : KnownTypes()) {
    if (name == each.name || name == each.legacy) known = &each;
  }
  if (known == nullptr) return RefuseClass(name);
  result.type = known->type;
  if (const YAML::Node loader = FindKey(root, "sample_loader");
      loader.IsDefined() && !loader.IsNull()) {
    return absl::UnimplementedError(
        absl::StrCat("sample_loader ", loader.IsScalar() ? loader.Scalar() : "",
                     " is Python and cannot run here; where it only picks "
                     "parts, a field_map "
                     "says the same: `image: jpg`, `context: json[0][value]`"));
  }
  const YAML::Node map = FindKey(root, "field_map");
  BALLAST_ASSIGN_OR_RETURN(const std::vector<std::string> fields,
                           GetKeys(map, "field_map", kMaxFields));
  for (const std::string& field : fields) {
    if (field == "answer_weights") {
      return absl::UnimplementedError(
          "field_map.answer_weights: the first answer is trained on; choose by "
          "weight before, or remove the field to accept that");
    }
    if (!Contains(known->required, field)) {
      if (!Contains(known->optional, field)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "field_map: found ", field, ", which ", name, " does not have"));
      }
      if (known->type != EnergonType::kChatMl) continue;
    }
    BALLAST_ASSIGN_OR_RETURN(
        const std::string entry,
        GetText(FindKey(map, field), absl::StrCat("field_map.", field)));
    std::vector<EnergonAccess> ways = ParseEnergonAccess(entry);
    if (IsMediaField(field)) {
      for (const EnergonAccess& way : ways) {
        if (way.keys.empty()) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("field_map.", field, ": found ", entry,
                         "; wanted parts that are files, such as ",
                         absl::StrContains(field, "im") ? "jpg" : "mp4"));
      }
    } else {
      BALLAST_RETURN_IF_ERROR(CheckTextField(field, ways));
    }
    result.fields.emplace(field, std::move(ways));
  }
  for (const absl::string_view field : known->required) {
    if (result.fields.contains(std::string(field))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("field_map: no ", field, ", which ", name, " needs"));
  }
  return result;
}

std::string EnergonFieldsKey(const EnergonFields& fields) {
  std::string key = absl::StrCat(static_cast<int>(fields.type), "\n");
  // Before, samples with videos were bad.
  if (fields.type == EnergonType::kCrude) key += "with videos\n";
  // Before, an answer with a mark had the image, and lists gave their first.
  if (fields.type != EnergonType::kCrude) key += "media in questions\n";
  const auto add = [&key](absl::string_view text) {
    absl::StrAppend(&key, text.size(), ":", text);
  };
  for (const auto& [field, ways] : fields.fields) {
    add(field);
    absl::StrAppend(&key, ways.size(), ";");
    for (const EnergonAccess& way : ways) {
      add(way.part);
      absl::StrAppend(&key, way.keys.size(), ";");
      for (const std::string& each : way.keys) add(each);
    }
  }
  return key;
}

namespace {

constexpr size_t kMaxBytes = size_t{64} << 20;
constexpr size_t kMaxShards = 1'000'000;

absl::Status FolderFault(absl::string_view reason) {
  return absl::InvalidArgumentError(reason);
}

// The shards and their counts, in order: a shard's place is its id.
absl::StatusOr<absl::flat_hash_map<std::string, EnergonShard>> ParseInfo(
    const std::string& text) {
  BALLAST_ASSIGN_OR_RETURN(const YAML::Node root, ParseYaml(text));
  const YAML::Node counts = FindKey(root, "shard_counts");
  if (!counts.IsDefined() || !counts.IsMap()) {
    return FolderFault("no map shard_counts");
  }
  absl::flat_hash_map<std::string, EnergonShard> shards;
  for (const auto& entry : counts) {
    EnergonShard shard;
    shard.id = shards.size();
    BALLAST_ASSIGN_OR_RETURN(shard.name, GetText(entry.first, "shard_counts"));
    BALLAST_ASSIGN_OR_RETURN(
        const std::string count,
        GetText(entry.second, absl::StrCat("shard_counts.", shard.name)));
    if (!absl::SimpleAtoi(count, &shard.count)) {
      return FolderFault(absl::StrCat("shard_counts.", shard.name, ": found ",
                                      Printable(count), "; wanted a number"));
    }
    if (shards.size() == kMaxShards) {
      return FolderFault(absl::StrCat("over ", kMaxShards, " shards"));
    }
    const std::string name = shard.name;
    if (!shards.emplace(name, std::move(shard)).second) {
      return FolderFault(absl::StrCat("shard_counts: ", name, " twice"));
    }
  }
  return shards;
}

absl::StatusOr<std::vector<std::string>> ExpandAll(const YAML::Node& list,
                                                   absl::string_view key) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<std::string> patterns,
                           GetTexts(list, key, kMaxShards));
  std::vector<std::string> names;
  for (const std::string& pattern : patterns) {
    absl::StatusOr<std::vector<std::string>> more = ExpandBraces(pattern);
    if (!more.ok()) return Annotate(more.status(), key);
    if (more->size() > kMaxShards - names.size()) {
      return FolderFault(absl::StrCat(key, ": over ", kMaxShards, " entries"));
    }
    names.insert(names.end(), more->begin(), more->end());
  }
  return names;
}

absl::Status ShardName(absl::string_view name) {
  BALLAST_RETURN_IF_ERROR(CheckDataPath(name));
  if (absl::EndsWith(name, ".tar")) return absl::OkStatus();
  return FolderFault(absl::StrCat(
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
                           GetKeys(parts, "split_parts", 1000));
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
      return FolderFault(
          absl::StrCat("split_parts.", part, ": ", name, " twice"));
    }
    const auto found = known.find(name);
    if (found == known.end()) {
      return FolderFault(absl::StrCat(
          "split_parts.", part, ": ", name,
          " is not in shard_counts of .info; run `energon prepare` again"));
    }
    folder->shards.push_back(found->second);
  }
  if (!folder->shards.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("split_parts.", part, ": no shards"));
}

absl::StatusOr<std::string> ReadMeta(const std::string& path) {
  if (!IsStoreUrl(path)) return ReadSmallFile(path, kMaxBytes);
  return ReadSmallObject(&Storage::OfProcess(), path, kMaxBytes);
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
absl::StatusOr<std::string> GetFirst(const std::vector<std::string>& paths) {
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
                           GetFirst({absl::StrCat(meta, ".info.json"),
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
                             GetFirst({absl::StrCat(meta, "split.yaml"),
                                       absl::StrCat(meta, "split.json")}));
  }
  BALLAST_ASSIGN_OR_RETURN(texts.split, ReadMeta(split));
  // A recipe takes the place of a cooker, of a sample type and of its fields.
  const bool has_recipe = !source.recipe().empty();
  if (has_recipe) {
    texts.dataset = "__class__: CrudeWebdataset";
  } else {
    BALLAST_ASSIGN_OR_RETURN(
        texts.dataset,
        ReadMeta(absl::StrCat(meta, options.dataset_config().empty()
                                        ? "dataset.yaml"
                                        : options.dataset_config())));
  }
  absl::StatusOr<EnergonFolder> result = ParseEnergonFolder(
      texts, EnergonSplitPart(source),
      has_recipe || options.crude() == v1::Source::Energon::CRUDE_WEBDATASET);
  if (!result.ok()) return Annotate(result.status(), meta);
  result->folder = folder;
  return result;
}

}  // namespace ballast
