#include "server/recipe/recipe.h"

#include <nlohmann/json.hpp>

#include <xxhash.h>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/recipe/cooker_text.h"
#include "server/recipe/image_recipe.h"
#include "server/recipe/turns_json.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using Json = nlohmann::json;
using recipe_helper::Outcome;

constexpr uint64_t kMaxAnswerBytes =
    2 * recipe_helper::kMaxBytes + (uint64_t{64} << 20);

bool ReadMedium(const Json& json, CookedSample::Medium* medium) {
  if (json.is_string()) {
    *medium = json.get<std::string>();
    return true;
  }
  if (!json.is_number_unsigned()) return false;
  const uint64_t number = json.get<uint64_t>();
  *medium = static_cast<uint32_t>(number);
  return number <= 0xFFFFFFFF;
}

// Reads the media of an answer. False: it contradicts the protocol.
bool ReadMedia(absl::string_view text, CookedSample* sample) {
  if (text.empty()) return true;
  const Json media = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!media.is_object()) return false;
  const auto images = media.find("images");
  const auto videos = media.find("videos");
  if (const auto fields = media.find("fields"); fields != media.end()) {
    if (!fields->is_object() || !sample->is_document) return false;
    sample->fields = fields->dump();
  }
  if (images == media.end() || !images->is_array() || videos == media.end() ||
      !videos->is_array()) {
    return false;
  }
  for (const Json& image : *images) {
    if (!ReadMedium(image, &sample->images.emplace_back())) return false;
  }
  for (const Json& video : *videos) {
    CookedSample::Video& cooked = sample->videos.emplace_back();
    cooked.is_list = video.is_array();
    if (!cooked.is_list) {
      if (!ReadMedium(video, &cooked.parts.emplace_back())) return false;
      continue;
    }
    for (const Json& picture : video) {
      if (!ReadMedium(picture, &cooked.parts.emplace_back())) return false;
    }
  }
  return true;
}

// Writes the conversation of kTurns as JSON. False: it contradicts the
// protocol.
bool WriteTurns(absl::string_view given, std::string* json) {
  constexpr size_t kKeys = 3;
  std::vector<absl::string_view> texts = absl::StrSplit(given, '\0');
  if (texts.size() <= kKeys || texts.size() % 2 != kKeys % 2) return false;
  json->reserve(given.size() + given.size() / 8 + 16 * texts.size());
  json->push_back('{');
  AppendJsonText(texts[0], json);
  for (size_t i = kKeys; i < texts.size(); i += 2) {
    json->append(i == kKeys ? ":[{" : "},{");
    for (size_t k = 0; k < 2; ++k) {
      if (k > 0) json->push_back(',');
      AppendJsonText(texts[1 + k], json);
      json->push_back(':');
      AppendJsonText(texts[i + k], json);
    }
  }
  json->append("}]}");
  return true;
}

void AppendRecord(const RecipeRecord& record, std::string* request) {
  absl::StrAppend(request, record.source, absl::string_view("\0", 1),
                  record.name, record.text);
  for (const RecipeRecord::Part& part : record.parts) {
    const recipe_helper::Part head = {
        part.size, static_cast<uint32_t>(part.name.size()),
        part.bytes.has_value() ? static_cast<uint32_t>(part.bytes->size())
                               : recipe_helper::kNone};
    absl::StrAppend(request, GetBytes(head), part.name,
                    part.bytes.has_value() ? absl::string_view(*part.bytes)
                                           : absl::string_view());
  }
}

}  // namespace

size_t RecipeRecord::bytes() const {
  size_t bytes = text.size();
  for (const Part& part : parts) {
    bytes += part.bytes.has_value() ? part.bytes->size() : 0;
  }
  return bytes;
}

uint32_t RecipeRecord::hash() const {
  if (parts.empty()) {
    return static_cast<uint32_t>(XXH3_64bits(text.data(), text.size()));
  }
  RecipeRecord unnamed = *this;
  unnamed.source.clear();
  unnamed.name.clear();
  std::string all;
  AppendRecord(unnamed, &all);
  return static_cast<uint32_t>(XXH3_64bits(all.data(), all.size()));
}

namespace {

// JSON as it is, other texts as a string.
nlohmann::ordered_json ToJson(const std::string& text) {
  auto json = nlohmann::ordered_json::parse(text, nullptr,
                                            /*allow_exceptions=*/false);
  return json.is_discarded() ? nlohmann::ordered_json(text) : json;
}

}  // namespace

std::string RecordJson(const RecipeRecord& record) {
  nlohmann::ordered_json json = {{"name", record.name}};
  if (record.kind != RecipeRecord::Kind::kMembers) {
    json[record.kind == RecipeRecord::Kind::kRow ? "columns" : "line"] =
        ToJson(record.text);
  }
  for (const RecipeRecord::Part& part : record.parts) {
    nlohmann::ordered_json media = {{"name", part.name}, {"bytes", part.size}};
    if (part.bytes.has_value()) media["holds"] = ToJson(*part.bytes);
    json["media"].push_back(std::move(media));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A record of a caller, until it is cooked.
struct Recipe::Waiting : HelperPool::Job {
  const RecipeRecord* record = nullptr;
  std::optional<CookedSample> cooked;

  // Takes what the program, which has run untrusted code, says of the record.
  // False: it contradicts itself.
  bool TakeOutcome(absl::string_view* from) {
    Outcome head;
    if (!Take(from, &head)) return false;
    if (from->size() < uint64_t{head.text} + head.media) return false;
    const absl::string_view all = from->substr(0, head.text + head.media);
    const absl::string_view text = from->substr(0, head.text);
    from->remove_prefix(all.size());
    cooked.reset();
    status = absl::OkStatus();
    switch (head.kind) {
      case recipe_helper::kLeftOut:
        return all.empty();
      case recipe_helper::kFault:
      case recipe_helper::kTooLong:
        return head.media == 0 && ReadRecipeFault(head.kind, text, &status);
      case recipe_helper::kGave:
      case recipe_helper::kDocument:
      case recipe_helper::kTurns:
        break;
      default:
        return false;
    }
    cooked.emplace();
    cooked->is_document = head.kind == recipe_helper::kDocument;
    if (head.kind != recipe_helper::kTurns) {
      cooked->text = std::string(text);
    } else if (!WriteTurns(text, &cooked->text)) {
      return false;
    }
    cooked->hash = static_cast<uint32_t>(
        XXH3_64bits_withSeed(all.data(), all.size(), head.text + head.kind));
    return ReadMedia(all.substr(head.text), &*cooked);
  }
};

absl::StatusOr<std::shared_ptr<const Recipe>> Recipe::Open(
    const std::string& path, const Options& options) {
  const absl::string_view cooker(reinterpret_cast<const char*>(kCooker),
                                 kCookerBytes);
  BALLAST_ASSIGN_OR_RETURN(
      std::unique_ptr<RecipeProgram> program,
      RecipeProgram::Open(
          path,
          {{"cooker", cooker}, recipe_helper::kBytesPerSecond, &Recipe::AskFor},
          options));
  return absl::WrapUnique(new Recipe(std::move(program)));
}

std::vector<absl::StatusOr<std::optional<CookedSample>>> Recipe::Cook(
    absl::Span<const RecipeRecord* const> records) const {
  std::vector<Waiting> own(records.size());
  std::vector<HelperPool::Job*> jobs;
  for (size_t i = 0; i < own.size(); ++i) {
    own[i].record = records[i];
    own[i].bytes = records[i]->bytes();
    jobs.push_back(&own[i]);
  }
  program_->Run(jobs);
  std::vector<absl::StatusOr<std::optional<CookedSample>>> results;
  for (Waiting& one : own) {
    if (one.status.ok()) {
      results.push_back(std::move(one.cooked));
    } else {
      results.push_back(one.status);
    }
  }
  return results;
}

absl::Status Recipe::AskFor(HelperPool::Worker* worker,
                            absl::Span<HelperPool::Job* const> jobs) {
  HelperProcess* const helper = worker->helper.get();
  worker->request = std::string(GetBytes(static_cast<uint32_t>(jobs.size())));
  for (const HelperPool::Job* job : jobs) {
    const RecipeRecord& record = *static_cast<const Waiting*>(job)->record;
    absl::StrAppend(&worker->request,
                    GetBytes(recipe_helper::Head{
                        static_cast<uint32_t>(record.kind),
                        static_cast<uint32_t>(record.source.size() + 1 +
                                              record.name.size()),
                        static_cast<uint32_t>(record.text.size()),
                        static_cast<uint32_t>(record.parts.size())}));
  }
  for (const HelperPool::Job* job : jobs) {
    AppendRecord(*static_cast<const Waiting*>(job)->record, &worker->request);
  }
  return helper->Ask([&]() -> absl::Status {
    uint32_t kind = 0;
    BALLAST_RETURN_IF_ERROR(
        helper->Send(recipe_helper::kCook, {worker->request}));
    BALLAST_RETURN_IF_ERROR(
        helper->Receive(kMaxAnswerBytes, &kind, &worker->answer));
    absl::string_view answer = worker->answer;
    bool is_sound = kind == recipe_helper::kDone;
    for (size_t i = 0; is_sound && i < jobs.size(); ++i) {
      is_sound = static_cast<Waiting*>(jobs[i])->TakeOutcome(&answer);
    }
    if (is_sound && answer.empty()) return absl::OkStatus();
    helper->Stop(HelperEnd::kAnswer);
    return DataFaultError("the recipe: an answer that contradicts itself");
  });
}

Recipes& Recipes::OfProcess() {
  static Recipes* const recipes = new Recipes;
  return *recipes;
}

void Recipes::SetProcesses(size_t processes) {
  MutexLock lock(&mutex_);
  processes_ = processes;
}

template <typename T>
absl::StatusOr<std::shared_ptr<const T>> Recipes::GetAmong(
    const std::string& path, Opened<T>* opened) {
  BALLAST_ASSIGN_OR_RETURN(const std::string text,
                           ReadSmallFile(path, RecipeProgram::kMaxFileBytes));
  for (const auto& [known, recipe] : *opened) {
    if (known == path && recipe->text() == text) return recipe;
  }
  BALLAST_ASSIGN_OR_RETURN(std::shared_ptr<const T> recipe,
                           T::Open(path, {.processes = processes_}));
  std::erase_if(*opened, [&](const auto& each) { return each.first == path; });
  opened->emplace_back(path, recipe);
  return recipe;
}

absl::StatusOr<std::shared_ptr<const Recipe>> Recipes::Get(
    const std::string& path) {
  MutexLock lock(&mutex_);
  return GetAmong<Recipe>(path, &recipes_);
}

absl::StatusOr<std::shared_ptr<const ImageRecipe>> Recipes::GetForImages(
    const std::string& path) {
  MutexLock lock(&mutex_);
  return GetAmong<ImageRecipe>(path, &image_recipes_);
}

}  // namespace ballast
