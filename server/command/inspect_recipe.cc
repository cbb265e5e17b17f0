#include "server/command/inspect_recipe.h"

#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/config/config_loader.h"
#include "server/config/path_pattern.h"
#include "server/corpus/record_parser.h"
#include "server/corpus/source_files.h"
#include "server/job/job_setup.h"
#include "server/recipe/recipe.h"
#include "server/storage/storage.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string config;
  std::string source;
  uint64_t sample = 0;
};

// Keeps record `wanted` of those that come.
class RecordFinder final : public RawRecordSink {
 public:
  explicit RecordFinder(uint64_t wanted) : left_(wanted) {}

  void BeginFile(std::string name) { name_ = std::move(name); }
  std::optional<RawRecord>& found() { return found_; }

  const std::string& name() const override { return name_; }
  absl::Status Add(RawRecord record) override {
    if (left_-- > 0) return absl::OkStatus();
    found_ = std::move(record);
    return absl::CancelledError("found");
  }
  absl::Status AddBad(uint64_t offset, absl::string_view key,
                      const absl::Status& reason) override {
    std::cerr << name_ << " at byte " << offset << ", sample " << key << ": "
              << reason.message() << "\n";
    return absl::OkStatus();
  }
  absl::Status AddDamage(uint64_t offset, absl::string_view lost_key,
                         const absl::Status& reason) override {
    return AddBad(offset, lost_key, reason);
  }
  void AddFiltered() override {}
  void Advance(uint64_t /*offset*/) override {}

 private:
  std::string name_;
  uint64_t left_;
  std::optional<RawRecord> found_;
};

absl::StatusOr<RawRecord> FindRecord(const v1::Source& source,
                                     const std::string& directory,
                                     uint64_t number) {
  BALLAST_ASSIGN_OR_RETURN(const RecordFormat* format, FindFormat(source));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<RawRecordParser> parser,
                           format->make_raw(source, directory));
  RecordFinder finder(number);
  for (const SourceFile& each : files) {
    BALLAST_ASSIGN_OR_RETURN(const File file,
                             Storage::OfProcess().Open(each.path));
    finder.BeginFile(each.name);
    const absl::Status scanned = parser->Scan(file, finder);
    if (finder.found().has_value()) {
      RawRecord found = *std::move(finder.found());
      found.given.source = source.name();
      found.given.name = found.record.name;
      return found;
    }
    BALLAST_RETURN_IF_ERROR(scanned);
  }
  return absl::NotFoundError(absl::StrCat(
      "source ", source.name(), " has no record ", number, ", counted from 0"));
}

// JSON as it is, other texts as a string.
Json ToJson(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json(text) : json;
}

Json ToJson(const RecipeRecord& given) {
  Json json = {{"name", given.name}};
  if (given.kind != RecipeRecord::Kind::kMembers) {
    json[given.kind == RecipeRecord::Kind::kRow ? "columns" : "line"] =
        ToJson(given.text);
  }
  for (const RecipeRecord::Part& part : given.parts) {
    Json media = {{"name", part.name}, {"bytes", part.size}};
    if (part.bytes.has_value()) media["holds"] = ToJson(*part.bytes);
    json["media"].push_back(std::move(media));
  }
  return json;
}

Json ToJson(const CookedSample::Medium& medium, const RecipeRecord& given) {
  if (const auto* path = std::get_if<std::string>(&medium)) return *path;
  const uint32_t number = std::get<uint32_t>(medium);
  return number < given.parts.size() ? Json(given.parts[number].name)
                                     : Json(number);
}

Json ToJson(const CookedSample& cooked, const RecipeRecord& given) {
  Json json = {{cooked.is_document ? "document" : "conversation",
                cooked.is_document ? Json(cooked.text) : ToJson(cooked.text)}};
  for (const CookedSample::Medium& image : cooked.images) {
    json["images"].push_back(ToJson(image, given));
  }
  for (const CookedSample::Video& video : cooked.videos) {
    Json parts = Json::array();
    for (const CookedSample::Medium& part : video.parts) {
      parts.push_back(ToJson(part, given));
    }
    json["videos"].push_back(video.is_list ? parts : parts[0]);
  }
  return json;
}

absl::Status InspectRecipe(const Options& options) {
  BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config,
                           LoadConfig(options.config));
  BALLAST_RETURN_IF_ERROR(ConfigureProcess(config.config));
  const v1::Source* source = nullptr;
  for (const v1::Source& each : config.config.sources()) {
    if (each.recipe().empty()) continue;
    if (options.source.empty() || each.name() == options.source) {
      source = &each;
      break;
    }
  }
  if (source == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "no source ", options.source, options.source.empty() ? "" : " ",
        "with a recipe; wanted sources[].recipe in ", options.config));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const Recipe> recipe,
                           Recipes::OfProcess().Get(ResolvePath(
                               config.directory, source->recipe())));
  BALLAST_ASSIGN_OR_RETURN(
      const RawRecord raw,
      FindRecord(*source, config.directory, options.sample));
  const RecipeRecord* const given = &raw.given;
  Json json = {{"source", source->name()},
               {"recipe", recipe->name()},
               {"record", ToJson(*given)}};
  const auto begin = std::chrono::steady_clock::now();
  const auto answer = recipe->Cook({&given, 1})[0];
  const std::chrono::duration<double, std::micro> time =
      std::chrono::steady_clock::now() - begin;
  const auto print = [&json] {
    std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace)
              << std::endl;
  };
  if (!answer.ok()) {
    print();
    return Annotate(answer.status(), given->name);
  }
  json["sample"] =
      answer->has_value() ? ToJson(**answer, *given) : Json(nullptr);
  json["microseconds"] = time.count();
  recipe->Restart();
  const auto again = recipe->Cook({&given, 1})[0];
  const bool is_same =
      again.ok() && again->has_value() == answer->has_value() &&
      (!again->has_value() || (*again)->hash == (*answer)->hash);
  json["same_in_another_process"] = is_same;
  print();
  return absl::OkStatus();
}

}  // namespace

void AddInspectRecipe(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      inspect, "recipe",
      R"(Runs the recipe of a source on one record, without an index.
One JSON object with the keys: source, recipe (hash and versions), record {name,
line or columns, media [{name, bytes, holds}]}, sample {conversation or
document, images, videos}, or null for a record that is left out, microseconds
(of one record alone, with its way to the process), same_in_another_process.)",
      "  ballast-server inspect recipe --config ballast.yaml --sample 17\n"
      "  ballast-server inspect recipe --config ballast.yaml --source chats",
      [options] { return InspectRecipe(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .Required()
      .TypeName("FILE");
  command
      ->AddText("--source", &options->source,
                "name of the source; default: the first with a recipe")
      .TypeName("NAME");
  command->AddWholeNumber("--sample", &options->sample,
                          "number of the record in the source's files, from 0");
}

}  // namespace ballast
