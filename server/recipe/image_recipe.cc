#include "server/recipe/image_recipe.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/recipe/imager_text.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using Json = nlohmann::json;
using recipe_helper::Outcome;

constexpr size_t kMaxPlanBytes = size_t{64} << 20;
// Of the answer to many plans; of the pixels of an image.
constexpr uint64_t kMaxPlansAnswer = uint64_t{64} << 20;
constexpr uint64_t kMaxAnswerBeside = uint64_t{1} << 20;
constexpr uint32_t kMaxSide = 1 << 16;
constexpr uint64_t kMaxTokens = uint64_t{1} << 32;

absl::Status PlanFault(absl::string_view found, absl::string_view wanted) {
  return DataFaultError(
      absl::StrCat("the recipe: image_plan gave ", found, "; wanted ", wanted));
}

std::string Shown(const Json& json) {
  constexpr size_t kMost = 200;
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

std::optional<uint32_t> ReadSide(const Json& json) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() < 1 ||
      json.get<uint64_t>() > kMaxSide) {
    return std::nullopt;
  }
  return json.get<uint32_t>();
}

// A crop of [H, W] or [H, W, left, top, right, bottom].
absl::StatusOr<PlanStage> ReadCrop(const Json& crop, uint32_t height,
                                   uint32_t width) {
  const auto fault = [&](absl::string_view wanted) {
    return PlanFault(absl::StrCat("the crop ", Shown(crop)), wanted);
  };
  if (!crop.is_array() || (crop.size() != 2 && crop.size() != 6)) {
    return fault("(height, width) or a recipe.Crop with a box of four sides");
  }
  const std::optional<uint32_t> crop_height = ReadSide(crop[0]);
  const std::optional<uint32_t> crop_width = ReadSide(crop[1]);
  if (!crop_height || !crop_width) {
    return fault("a height and a width of 1 to 65536, as int");
  }
  PlanStage stage;
  stage.height = *crop_height;
  stage.width = *crop_width;
  stage.place = stage.crop = {0, 0, stage.height, stage.width};
  stage.from = {0, 0, height, width};
  stage.rows = stage.columns = 1;
  if (crop.size() == 2) return stage;
  uint64_t box[4];
  for (int i = 0; i < 4; ++i) {
    if (!crop[i + 2].is_number_unsigned()) return fault("a box of int");
    box[i] = crop[i + 2].get<uint64_t>();
  }
  if (box[0] >= box[2] || box[2] > width || box[1] >= box[3] ||
      box[3] > height) {
    return fault(absl::StrCat("a box (left, top, right, bottom) within the ",
                              width, "x", height, " pixels of the image"));
  }
  stage.from = {static_cast<uint32_t>(box[1]), static_cast<uint32_t>(box[0]),
                static_cast<uint32_t>(box[3] - box[1]),
                static_cast<uint32_t>(box[2] - box[0])};
  return stage;
}

// A recipe's text: adds its placeholders to *tokens.
absl::StatusOr<std::vector<ImageTextPiece>> ReadText(const Json& text,
                                                     uint64_t* tokens) {
  constexpr char kWanted[] =
      "a list of texts and numbers of placeholders, at least one of these";
  const auto fault = [&] {
    return PlanFault(absl::StrCat("the text ", Shown(text)), kWanted);
  };
  if (!text.is_array()) return fault();
  std::vector<ImageTextPiece> pieces;
  for (const Json& piece : text) {
    if (piece.is_string()) {
      pieces.push_back({0, piece.get<std::string>()});
    } else if (piece.is_number_unsigned() && piece.get<uint64_t>() > 0 &&
               piece.get<uint64_t>() < kMaxTokens) {
      pieces.push_back({piece.get<uint64_t>(), ""});
      *tokens += piece.get<uint64_t>();
    } else {
      return fault();
    }
  }
  if (*tokens == 0 || *tokens >= kMaxTokens) return fault();
  return pieces;
}

}  // namespace

absl::StatusOr<ImagePlan> ParseRecipePlan(absl::string_view json,
                                          uint32_t height, uint32_t width) {
  const Json root = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  const auto get = [&](const char* key) {
    return root.is_object() && root.contains(key) ? root[key] : Json();
  };
  const Json crops = get("crops");
  if (!crops.is_array() || crops.empty() || crops.size() > kMaxFamilyTiles) {
    return PlanFault(absl::StrCat(crops.size(), " crops"),
                     absl::StrCat("1 to ", kMaxFamilyTiles));
  }
  ImagePlan plan;
  for (const Json& crop : crops) {
    BALLAST_ASSIGN_OR_RETURN(const PlanStage stage,
                             ReadCrop(crop, height, width));
    plan.stages.push_back(stage);
  }
  auto given = std::make_shared<RecipePlan>();
  given->json = std::string(json);
  if (const Json text = get("text"); !text.is_null()) {
    uint64_t tokens = 0;
    BALLAST_ASSIGN_OR_RETURN(given->text, ReadText(text, &tokens));
    given->tokens = tokens;
  }
  if (const Json tokens = get("tokens"); !tokens.is_null()) {
    if (!tokens.is_number_unsigned() || tokens.get<uint64_t>() == 0 ||
        tokens.get<uint64_t>() >= kMaxTokens) {
      return PlanFault(absl::StrCat("tokens=", Shown(tokens)), "1 to 2^32-1");
    }
    if (given->tokens.value_or(tokens.get<uint64_t>()) !=
        tokens.get<uint64_t>()) {
      return PlanFault(
          absl::StrCat("tokens=", Shown(tokens)),
          absl::StrCat("the ", *given->tokens, " placeholders of its text"));
    }
    given->tokens = tokens.get<uint64_t>();
  }
  plan.recipe = std::move(given);
  return plan;
}

std::string WritePlanOfFamily(const ImagePlan& plan) {
  std::string json = R"({"crops":[)";
  absl::string_view seam;
  for (const PlanStage& stage : plan.stages) {
    for (uint32_t i = 0; i < stage.rows * stage.columns; ++i) {
      absl::StrAppend(&json, std::exchange(seam, ","), "[", stage.crop.height,
                      ",", stage.crop.width, "]");
    }
  }
  return json + "]}";
}

// An image of a caller, until its plan or its pixels are made.
struct ImageRecipe::Waiting : HelperPool::Job {
  const PlanFacts* facts = nullptr;
  ImageDraw draw;
  // Of kPixels.
  bool wants_pixels = false;
  std::string plan_json;
  absl::Span<const uint8_t> rgb;
  absl::Span<const absl::Span<uint8_t>> crops;
  uint64_t crop_bytes = 0;
  // Of kPlan.
  ImagePlan plan;

  void Append(std::string* request) const {
    absl::StrAppend(request,
                    GetBytes(recipe_helper::Facts{
                        draw.seed, draw.epoch, draw.ordinal, facts->width,
                        facts->height, facts->images, facts->number,
                        static_cast<uint32_t>(facts->source.size()),
                        static_cast<uint32_t>(facts->split.size()),
                        static_cast<uint32_t>(plan_json.size()),
                        static_cast<uint32_t>(rgb.size())}),
                    facts->source, facts->split, plan_json);
  }

  // Takes what the program, which has run untrusted code, says of the image.
  // False: it contradicts itself.
  bool TakeOutcome(absl::string_view* from) {
    Outcome head;
    if (!Take(from, &head)) return false;
    if (from->size() < uint64_t{head.text} + head.media) return false;
    const absl::string_view text = from->substr(0, head.text);
    const absl::string_view pixels = from->substr(head.text, head.media);
    from->remove_prefix(text.size() + pixels.size());
    status = absl::OkStatus();
    if (head.kind != recipe_helper::kGave) {
      return pixels.empty() && ReadRecipeFault(head.kind, text, &status);
    }
    if (!wants_pixels) {
      if (!CheckUtf8(text).ok()) return false;
      auto read = ParseRecipePlan(text, facts->height, facts->width);
      if (read.ok()) {
        plan = *std::move(read);
      } else {
        status = read.status();
      }
      return pixels.empty();
    }
    if (pixels.size() != crop_bytes) return false;
    const char* next = pixels.data();
    for (const absl::Span<uint8_t> crop : crops) {
      std::memcpy(crop.data(), next, crop.size());
      next += crop.size();
    }
    return text.empty();
  }
};

ImageRecipe::ImageRecipe(std::unique_ptr<RecipeProgram> program)
    : program_(std::move(program)) {
  const Json& facts = program_->facts();
  has_plan_ = facts.value("plans", false);
  draws_ = facts.value("draws", false);
  has_pixels_ = facts.value("pixels", false);
  most_tokens_ = facts.value("most_tokens", uint64_t{0});
}

absl::StatusOr<std::shared_ptr<const ImageRecipe>> ImageRecipe::Open(
    const std::string& path, const Options& options) {
  const absl::string_view imager(reinterpret_cast<const char*>(kImager),
                                 kImagerBytes);
  BALLAST_ASSIGN_OR_RETURN(
      std::unique_ptr<RecipeProgram> program,
      RecipeProgram::Open(path,
                          {{"imager", imager},
                           recipe_helper::kPixelBytesPerSecond,
                           &ImageRecipe::AskFor},
                          options));
  return absl::WrapUnique(new ImageRecipe(std::move(program)));
}

std::string ImageRecipe::MakeKey(const PlanFacts& facts) const {
  const uint32_t sides[] = {facts.height, facts.width, facts.images,
                            facts.number};
  std::string key(GetBytes(sides));
  if (draws_) absl::StrAppend(&key, GetBytes(facts.draw));
  absl::StrAppend(&key, facts.source, absl::string_view("\0", 1), facts.split);
  return key;
}

void ImageRecipe::Keep(const std::string& key, const ImagePlan& plan) const {
  if (!plans_.emplace(key, plan).second) return;
  plan_bytes_ += 256 + key.size() + plan.recipe->json.size() * 2 +
                 plan.stages.size() * sizeof(PlanStage);
  if (plan_bytes_ < kMaxPlanBytes / 2) return;
  older_ = std::exchange(plans_, Plans());
  plan_bytes_ = 0;
}

std::vector<absl::StatusOr<ImagePlan>> ImageRecipe::Plan(
    absl::Span<const PlanFacts> images) const {
  std::vector<absl::StatusOr<ImagePlan>> results(images.size(), ImagePlan());
  std::vector<std::string> keys(images.size());
  std::vector<size_t> missing;
  {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < images.size(); ++i) {
      keys[i] = MakeKey(images[i]);
      if (const auto known = plans_.find(keys[i]); known != plans_.end()) {
        results[i] = known->second;
      } else if (const auto old = older_.find(keys[i]); old != older_.end()) {
        const ImagePlan plan = old->second;
        results[i] = plan;
        Keep(keys[i], plan);
      } else {
        missing.push_back(i);
      }
    }
  }
  if (missing.empty()) return results;
  std::vector<Waiting> own(missing.size());
  std::vector<HelperPool::Job*> jobs;
  for (size_t k = 0; k < own.size(); ++k) {
    own[k].facts = &images[missing[k]];
    if (draws_) own[k].draw = images[missing[k]].draw;
    jobs.push_back(&own[k]);
  }
  program_->Run(jobs);
  MutexLock lock(&mutex_);
  for (size_t k = 0; k < own.size(); ++k) {
    if (own[k].status.ok()) {
      results[missing[k]] = own[k].plan;
      Keep(keys[missing[k]], own[k].plan);
    } else {
      results[missing[k]] = own[k].status;
    }
  }
  return results;
}

absl::Status ImageRecipe::MakePixels(
    const PlanFacts& facts, const ImagePlan& plan,
    absl::Span<const uint8_t> rgb,
    absl::Span<const absl::Span<uint8_t>> crops) const {
  if (rgb.size() != size_t{3} * facts.height * facts.width) {
    return absl::InternalError(absl::StrCat(
        rgb.size(), " bytes of an image of ", facts.width, "x", facts.height));
  }
  Waiting own;
  own.facts = &facts;
  own.draw = facts.draw;
  own.wants_pixels = true;
  own.plan_json =
      plan.recipe != nullptr ? plan.recipe->json : WritePlanOfFamily(plan);
  own.rgb = rgb;
  own.crops = crops;
  own.bytes = rgb.size();
  for (const absl::Span<uint8_t> crop : crops) own.crop_bytes += crop.size();
  HelperPool::Job* const job = &own;
  program_->Run({&job, 1});
  return own.status;
}

void ImageRecipe::Restart() const {
  program_->Restart();
  MutexLock lock(&mutex_);
  plans_.clear();
  older_.clear();
  plan_bytes_ = 0;
}

absl::Status ImageRecipe::AskFor(HelperPool::Worker* worker,
                                 absl::Span<HelperPool::Job* const> jobs) {
  HelperProcess* const helper = worker->helper.get();
  // One exchange: `jobs` are all plans, or one image.
  const auto exchange = [&](uint32_t request_kind,
                            absl::Span<Waiting* const> of) -> absl::Status {
    worker->request = std::string(GetBytes(static_cast<uint32_t>(of.size())));
    uint64_t most = kMaxPlansAnswer;
    absl::string_view pixels;
    for (const Waiting* one : of) {
      one->Append(&worker->request);
      if (!one->wants_pixels) continue;
      most = one->crop_bytes + kMaxAnswerBeside;
      pixels = absl::string_view(reinterpret_cast<const char*>(one->rgb.data()),
                                 one->rgb.size());
    }
    uint32_t kind = 0;
    BALLAST_RETURN_IF_ERROR(
        helper->Send(request_kind, {worker->request, pixels}));
    BALLAST_RETURN_IF_ERROR(helper->Receive(most, &kind, &worker->answer));
    absl::string_view answer = worker->answer;
    bool is_sound = kind == recipe_helper::kDone;
    for (Waiting* one : of) is_sound = is_sound && one->TakeOutcome(&answer);
    if (is_sound && answer.empty()) return absl::OkStatus();
    helper->Stop(HelperEnd::kAnswer);
    return DataFaultError("the recipe: an answer that contradicts itself");
  };
  std::vector<Waiting*> plans;
  std::vector<Waiting*> images;
  for (HelperPool::Job* job : jobs) {
    Waiting* const one = static_cast<Waiting*>(job);
    (one->wants_pixels ? images : plans).push_back(one);
  }
  return helper->Ask([&]() -> absl::Status {
    if (!plans.empty()) {
      BALLAST_RETURN_IF_ERROR(exchange(recipe_helper::kPlan, plans));
    }
    for (Waiting* const& one : images) {
      BALLAST_RETURN_IF_ERROR(exchange(recipe_helper::kPixels, {&one, 1}));
    }
    // Crops may be large, and there are many processes.
    if (worker->answer.capacity() > kMaxAnswerBeside) {
      worker->answer = std::string();
    }
    return absl::OkStatus();
  });
}

}  // namespace ballast
