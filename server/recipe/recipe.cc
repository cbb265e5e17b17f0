#include "server/recipe/recipe.h"

#include <nlohmann/json.hpp>
#include <utility>

#include <xxhash.h>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/python_helper.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/corpus/data_fault.h"
#include "server/recipe/cooker_text.h"
#include "server/recipe/protocol.h"
#include "server/recipe/recipe_text.h"

namespace ballast {
namespace {

using Json = nlohmann::json;
using recipe_helper::Outcome;

constexpr size_t kMaxRecipeBytes = size_t{4} << 20;
constexpr uint64_t kMaxReasonBytes = 1 << 16;
constexpr uint64_t kMaxAnswerBytes =
    2 * recipe_helper::kMaxBytes + (uint64_t{64} << 20);
// Raised when the same recipe makes other samples of the same records.
constexpr int kRules = 1;

constexpr char kNoPython[] =
    "recipes need a python3 with what they import: the first of PATH counts, "
    "or Debian's";

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
      case recipe_helper::kTooLong: {
        if (!CheckUtf8(text).ok() || head.media > 0) return false;
        const std::string why = absl::StrCat("the recipe: ", text);
        // Another machine may be faster.
        status = head.kind == recipe_helper::kFault
                     ? DataFaultError(why)
                     : absl::UnavailableError(why);
        return true;
      }
      case recipe_helper::kConversation:
      case recipe_helper::kDocument:
        break;
      default:
        return false;
    }
    cooked.emplace();
    cooked->is_document = head.kind == recipe_helper::kDocument;
    cooked->text = std::string(text);
    cooked->hash = static_cast<uint32_t>(
        XXH3_64bits_withSeed(all.data(), all.size(), head.text + head.kind));
    return ReadMedia(all.substr(head.text), &*cooked);
  }
};

Recipe::Recipe(std::string path, std::string text, const Options& options)
    : path_(std::move(path)), text_(std::move(text)), options_(options) {}

absl::StatusOr<std::shared_ptr<const Recipe>> Recipe::Open(
    const std::string& path, const Options& options) {
  BALLAST_ASSIGN_OR_RETURN(std::string text,
                           ReadSmallFile(path, kMaxRecipeBytes));
  if (const absl::Status utf8 = CheckUtf8(text); !utf8.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", utf8.message(), "; wanted UTF-8"));
  }
  std::shared_ptr<Recipe> recipe =
      absl::WrapUnique(new Recipe(path, std::move(text), options));
  std::vector<std::string> failed;
  for (const std::string& python : FindPythons()) {
    recipe->MakePool(python);
    const absl::Status status = recipe->pool_->Start();
    if (status.ok()) return recipe;
    if (absl::IsInvalidArgument(status) && !IsDataFault(status)) {
      return Annotate(status, path);
    }
    if (absl::IsUnavailable(status)) return status;
    failed.push_back(absl::StrCat(python, ": ", status.message()));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": ", kNoPython, "; found ",
                   failed.empty() ? "none" : absl::StrJoin(failed, "; ")));
}

void Recipe::MakePool(const std::string& python) {
  pool_ = std::make_unique<HelperPool>(HelperPool::Options{
      .helper = {.name = "Python, which runs the recipe,",
                 .libraries = kNoPython,
                 .input_fault = DataFaultError,
                 .patience = options_.patience,
                 .prepare =
                     [this](HelperProcess* helper) { return Prepare(helper); }},
      .launch = [python] { return StartPython("ballast-recipe", python); },
      .ask = AskFor,
      .is_fault = IsDataFault,
      .processes = options_.processes});
}

absl::Status Recipe::Prepare(HelperProcess* helper) const {
  const absl::string_view module(reinterpret_cast<const char*>(kRecipeModule),
                                 kRecipeModuleBytes);
  const absl::string_view program(reinterpret_cast<const char*>(kCooker),
                                  kCookerBytes);
  BALLAST_RETURN_IF_ERROR(
      SendModules(helper, {{"ballast.recipe", module}, {"cooker", program}}));
  const Json settings = {{"path", path_},
                         {"text", text_},
                         {"seconds", options_.seconds},
                         {"bytes_a_second", recipe_helper::kBytesPerSecond},
                         {"load_seconds", recipe_helper::kLoadSeconds},
                         {"most_bytes", recipe_helper::kMaxBytes}};
  uint32_t kind = 0;
  std::string answer;
  BALLAST_RETURN_IF_ERROR(helper->Send(
      recipe_helper::kLoad,
      {settings.dump(-1, ' ', false, Json::error_handler_t::replace)}));
  BALLAST_RETURN_IF_ERROR(helper->Receive(kMaxReasonBytes, &kind, &answer));
  if (kind == recipe_helper::kNoPackage) {
    return absl::FailedPreconditionError(answer);
  }
  const Json versions = Json::parse(answer, nullptr, false);
  if (kind != recipe_helper::kDone || !versions.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the recipe is refused: ", answer));
  }
  BALLAST_RETURN_IF_ERROR(CloseBox(helper, recipe_helper::kMaxMemory));
  const XXH128_hash_t hash =
      XXH3_128bits_withSeed(text_.data(), text_.size(), kRules);
  const std::string name = absl::StrFormat(
      "%016x%016x+%s", hash.high64, hash.low64, versions.value("versions", ""));
  MutexLock lock(&mutex_);
  if (name_.empty()) name_ = name;
  if (name_ == name) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(path_, ": was run with ", name_.substr(name_.find('+') + 1),
                   ", and Python or a package is now another: ",
                   name.substr(name.find('+') + 1), "; restart the server"));
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
  pool_->Run(jobs);
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

absl::StatusOr<std::shared_ptr<const Recipe>> Recipes::Get(
    const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(const std::string text,
                           ReadSmallFile(path, kMaxRecipeBytes));
  // Held while it is opened, so that it is opened once.
  MutexLock lock(&mutex_);
  for (const auto& [known, recipe] : recipes_) {
    if (known == path && recipe->text() == text) return recipe;
  }
  BALLAST_ASSIGN_OR_RETURN(std::shared_ptr<const Recipe> opened,
                           Recipe::Open(path, {.processes = processes_}));
  std::erase_if(recipes_, [&](const auto& each) { return each.first == path; });
  recipes_.emplace_back(path, opened);
  return opened;
}

}  // namespace ballast
