#include "server/recipe/recipe_program.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include <xxhash.h>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/recipe/recipe_text.h"
#include "server/recipe/user_recipe_text.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxReasonBytes = 1 << 16;
// Raised when the same recipe gives other answers, or they another hash.
constexpr int kRules = 2;

constexpr char kNoPython[] =
    "recipes need a python3 with what they import: the first of PATH counts, "
    "or Debian's";

}  // namespace

RecipeProgram::RecipeProgram(std::string path, std::string text,
                             const Kind& kind, const Options& options)
    : path_(std::move(path)),
      text_(std::move(text)),
      kind_(kind),
      options_(options) {}

absl::StatusOr<std::unique_ptr<RecipeProgram>> RecipeProgram::Open(
    const std::string& path, const Kind& kind, const Options& options) {
  BALLAST_ASSIGN_OR_RETURN(std::string text,
                           ReadSmallFile(path, kMaxFileBytes));
  if (const absl::Status utf8 = CheckUtf8(text); !utf8.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", utf8.message(), "; wanted UTF-8"));
  }
  std::unique_ptr<RecipeProgram> program =
      absl::WrapUnique(new RecipeProgram(path, std::move(text), kind, options));
  std::vector<std::string> failed;
  for (const std::string& python : FindPythons()) {
    program->MakePool(python);
    const absl::Status status = program->pool_->Start();
    if (status.ok()) return program;
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

void RecipeProgram::MakePool(const std::string& python) {
  pool_ = std::make_unique<HelperPool>(HelperPool::Options{
      .helper = {.name = "Python, which runs the recipe,",
                 .libraries = kNoPython,
                 .input_fault = DataFaultError,
                 .patience = options_.patience,
                 .counters = &GetCounters(PythonUse::kRecipes),
                 .prepare =
                     [this](HelperProcess* helper) { return Prepare(helper); }},
      .launch = [python] { return StartPython(python); },
      .ask = kind_.ask,
      .is_fault = IsDataFault,
      .processes = options_.processes});
}

absl::Status RecipeProgram::Prepare(HelperProcess* helper) const {
  const absl::string_view module(reinterpret_cast<const char*>(kRecipeModule),
                                 kRecipeModuleBytes);
  const absl::string_view user(reinterpret_cast<const char*>(kUserRecipe),
                               kUserRecipeBytes);
  BALLAST_RETURN_IF_ERROR(SendModules(
      helper,
      {{"ballast.recipe", module}, {"recipe_user", user}, kind_.module}));
  const Json settings = {{"path", path_},
                         {"text", text_},
                         {"seconds", options_.seconds},
                         {"bytes_a_second", kind_.bytes_per_second},
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
  const Json facts = Json::parse(answer, nullptr, false);
  if (kind != recipe_helper::kDone || !facts.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the recipe is refused: ", answer));
  }
  BALLAST_RETURN_IF_ERROR(CloseBox(helper, recipe_helper::kMaxMemory));
  const XXH128_hash_t hash =
      XXH3_128bits_withSeed(text_.data(), text_.size(), kRules);
  const std::string name = absl::StrFormat(
      "%016x%016x+%s", hash.high64, hash.low64, facts.value("versions", ""));
  MutexLock lock(&mutex_);
  if (name_.empty()) {
    name_ = name;
    facts_ = std::make_shared<const Json>(facts);
  }
  if (name_ == name) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(path_, ": was run with ", name_.substr(name_.find('+') + 1),
                   ", and Python, a package, or what the recipe makes of the "
                   "images by which "
                   "processes are compared (plans, pixels) is now another: ",
                   name.substr(name.find('+') + 1), "; restart the server"));
}

bool ReadRecipeFault(uint32_t outcome, absl::string_view reason,
                     absl::Status* status) {
  if (outcome != recipe_helper::kFault && outcome != recipe_helper::kTooLong) {
    return false;
  }
  if (!CheckUtf8(reason).ok()) return false;
  const std::string why = absl::StrCat("the recipe: ", reason);
  // Another machine may be faster.
  *status = outcome == recipe_helper::kFault ? DataFaultError(why)
                                             : absl::UnavailableError(why);
  return true;
}

}  // namespace ballast
