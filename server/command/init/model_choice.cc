#include "server/command/init/model_choice.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "proto/config.pb.h"
#include "server/config/model_cost.h"
#include "server/media/audio/audio_plan.h"
#include "server/model/model_images.h"
#include "server/model/model_profile.h"
#include "server/model/model_warnings.h"
#include "server/model/profiles.h"
#include "server/text/chat_writer.h"

namespace ballast {

namespace {

using Json = nlohmann::json;
using enum ImageRule;

// The value at a path of keys, or null.
Json At(const Json& json, std::initializer_list<const char*> keys) {
  const Json* at = &json;
  for (const char* key : keys) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return *at;
}

// The value at keys with `.` between, or null.
Json AtPath(const Json& json, absl::string_view path) {
  const Json* at = &json;
  for (const absl::string_view key : absl::StrSplit(path, '.')) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(std::string(key));
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return *at;
}

std::string TextAt(const Json& json, std::initializer_list<const char*> keys) {
  const Json found = At(json, keys);
  return found.is_string() ? found.get<std::string>() : "";
}

// Collects differences.
class Comparison {
 public:
  Comparison(const Json& config, const Json& processor,
             const std::string& processor_file)
      : config_(config),
        processor_(processor),
        processor_file_(processor_file) {}

  // The first of these paths of preprocessor_config.json that there is.
  void Processor(
      std::initializer_list<std::initializer_list<const char*>> paths,
      const char* family_key, const Json& wanted) {
    for (const auto& path : paths) {
      if (Add(processor_file_, processor_, path, family_key, wanted)) {
        return;
      }
    }
  }
  // A list of preprocessor_config.json that may be any of these.
  void Pairs(const char* key, const char* family_key,
             const std::vector<Json>& wanted) {
    const Json found = At(processor_, {key});
    if (std::find(wanted.begin(), wanted.end(), found) != wanted.end()) return;
    Processor({{key}}, family_key, wanted[0]);
  }
  void Config(std::initializer_list<const char*> path, const char* family_key,
              const Json& wanted) {
    Add("config.json", config_, path, family_key, wanted);
  }

  std::vector<NumberDifference> Take() { return std::move(found_); }

 private:
  // Returns whether the file has a number, or a list, at the path.
  bool Add(const std::string& file, const Json& json,
           std::initializer_list<const char*> path, const char* family_key,
           const Json& wanted) {
    Json found = At(json, path);
    if (!found.is_number() && !found.is_array()) return false;
    // Both sides of a square.
    if (found.is_array() && found.size() == 2 && found[0] == found[1] &&
        wanted.is_number()) {
      found = Json(found[0]);
    }
    if (found == wanted) return true;
    std::string key = absl::StrCat(file, ":");
    const char* before = " ";
    for (const char* part : path) {
      absl::StrAppend(&key, before, part);
      before = ".";
    }
    found_.push_back({key, found.dump(), family_key, wanted.dump()});
    return true;
  }

  const Json& config_;
  const Json& processor_;
  const std::string& processor_file_;
  std::vector<NumberDifference> found_;
};

// With the sides of each pair in the order of transformers, or of LLaVA-NeXT.
Json GetCanvases(const ImageFamily& family, bool height_first) {
  Json list = Json::array();
  for (const auto& [height, width] : family.canvases) {
    list.push_back(height_first ? Json{height, width} : Json{width, height});
  }
  return list;
}

// Numbers that only some rules read.
void CompareByRule(const ImageFamily& family, Comparison* compare) {
  switch (family.rule) {
    case kLongestEdge:
      compare->Processor({{"size", "longest_edge"}}, "longest_edge",
                         family.longest_edge);
      compare->Config({"spatial_merge_size"}, "merge", family.merge);
      break;
    case kLongestEdgeTiles:
      compare->Processor({{"size", "longest_edge"}}, "longest_edge",
                         family.longest_edge);
      compare->Processor({{"max_image_size", "longest_edge"}}, "tile",
                         family.tile);
      compare->Config({"scale_factor"}, "merge", family.merge);
      break;
    case kCenterCrop:
    case kPadSquare:
      compare->Processor({{"crop_size", "height"}, {"crop_size"}}, "tile",
                         family.tile);
      break;
    case kPinpoints:
      compare->Processor({{"size", "height"}, {"crop_size", "height"}}, "tile",
                         family.tile);
      compare->Pairs("image_grid_pinpoints", "canvases",
                     {GetCanvases(family, true), GetCanvases(family, false)});
      break;
    case kFixedSize:
      compare->Processor({{"size", "height"}}, "tile", family.tile);
      break;
    case kTileGrid:
    case kBestFitTiles:
      compare->Processor({{"size", "height"}}, "tile", family.tile);
      compare->Processor({{"max_patches"}}, "max_tiles", family.max_tiles);
      break;
    case kSlices:
      compare->Processor({{"scale_resolution"}}, "tile", family.tile);
      compare->Processor({{"max_slice_nums"}}, "max_tiles", family.max_tiles);
      break;
    case kFillBudget:
      compare->Processor({{"max_soft_tokens"}}, "max_patches / merge^2",
                         family.max_patches / (family.merge * family.merge));
      compare->Processor({{"pooling_kernel_size"}}, "merge", family.merge);
      break;
    case kSmartResizeFrames:
      compare->Processor({{"temporal_patch_size"}}, "temporal_patch",
                         family.temporal_patch);
      compare->Processor({{"merge_size"}}, "merge", family.merge);
      break;
    default:
      compare->Processor({{"merge_size"}}, "merge", family.merge);
  }
}

}  // namespace

std::string FindCheckpoint(const Json& config, const Json& processor) {
  const std::string type = TextAt(config, {"model_type"});
  const std::string image_processor =
      TextAt(processor, {"image_processor_type"});
  const auto are_as_wanted = [](const auto& values, const Json& json) {
    return std::all_of(values.begin(), values.end(), [&](const auto& value) {
      return AtPath(json, value.key()) ==
             Json::parse(value.json(), nullptr, /*allow_exceptions=*/false);
    });
  };
  std::string best;
  std::pair<int, int> most = {-1, -1};
  for (const std::string& name : ProfileNames()) {
    for (const v1::ModelCheckpoint& one : FindProfile(name)->checkpoints()) {
      const bool is_known =
          type.empty()
              ? !one.image_processor().empty() &&
                    absl::StartsWith(image_processor, one.image_processor())
              : one.model_type() == type;
      if (!is_known || !are_as_wanted(one.config(), config) ||
          !are_as_wanted(one.preprocessor(), processor)) {
        continue;
      }
      const std::pair<int, int> values = {
          one.config_size() + one.preprocessor_size(), one.config_size()};
      if (values <= most) continue;
      most = values;
      best = name;
    }
  }
  return best;
}

std::vector<std::string> KnownModelTypes() {
  std::set<std::string> types;
  for (const std::string& name : ProfileNames()) {
    for (const v1::ModelCheckpoint& one : FindProfile(name)->checkpoints()) {
      if (!one.model_type().empty()) types.insert(one.model_type());
    }
  }
  return {types.begin(), types.end()};
}

std::vector<NumberDifference> DifferentNumbers(
    const Json& config, const Json& processor,
    const std::string& processor_file, const ImageFamily& family) {
  Comparison compare(config, processor, processor_file);
  compare.Processor({{"patch_size", "height"}, {"patch_size"}}, "patch",
                    family.patch);
  compare.Config({"vision_config", "patch_size"}, "patch", family.patch);
  CompareByRule(family, &compare);
  return compare.Take();
}

absl::StatusOr<uint64_t> MostPlaceholders(const std::string& profile) {
  v1::Model model;
  model.set_profile(profile);
  BALLAST_RETURN_IF_ERROR(ApplyModelProfile(&model));
  BALLAST_ASSIGN_OR_RETURN(const ModelImages images,
                           ModelImages::Create(model));
  uint64_t most = 0;
  // Squares and long images, among them those that fill a grid of tiles.
  for (const uint32_t height : {448, 1344, 4096}) {
    for (const uint32_t width : {448, 1344, 4096}) {
      const std::vector<ImageSize> side = {{width, height}};
      BALLAST_ASSIGN_OR_RETURN(const uint64_t placeholders,
                               images.Placeholders(side));
      most = std::max(most, placeholders);
    }
  }
  return most;
}

namespace {

using Json = nlohmann::json;

// About one megapixel: 1280 tokens of Qwen2.5-VL.
constexpr uint64_t kUsualMaxPixels = 1003520;
constexpr uint64_t kUsualClip = 30 * kModelRate;

absl::StatusOr<Json> Parse(const std::string& text, const std::string& name) {
  if (text.empty()) return Json::object();
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": found no JSON object; is the file whole?"));
}

class Chooser {
 public:
  Chooser(const SeenModel& seen, bool has_clips)
      : seen_(seen), has_clips_(has_clips) {}

  absl::StatusOr<ModelChoice> Choose() {
    BALLAST_RETURN_IF_ERROR(ChooseImages());
    if (const v1::AudioFamily* audio = FindAudioFamily(profile_)) {
      const std::vector<std::string> differences = AudioDifferences(
          seen_.preprocessor,
          absl::StrCat(seen_.folder, "/", seen_.processor_file), profile_,
          *audio);
      if (!differences.empty()) {
        return absl::InvalidArgumentError(differences[0]);
      }
      const absl::StatusOr<AudioPlan> plan = PlanAudio(*audio, kUsualClip);
      if (plan.ok()) choice_.clip_tokens = plan->tokens;
    }
    return std::move(choice_);
  }

 private:
  // All but what clips add.
  absl::Status ChooseImages() {
    if (seen_.folder.empty()) {
      WithoutModel();
      return absl::OkStatus();
    }
    BALLAST_ASSIGN_OR_RETURN(
        const Json config, Parse(seen_.config, seen_.folder + "/config.json"));
    BALLAST_ASSIGN_OR_RETURN(
        Json processor,
        Parse(seen_.preprocessor,
              absl::StrCat(seen_.folder, "/", seen_.processor_file)));
    const Json nested = At(processor, {"image_processor"});
    if (nested.is_object()) processor = nested;
    BALLAST_RETURN_IF_ERROR(ChooseProfile(config, processor));
    if (profile_.empty()) return absl::OkStatus();
    if (!TakesImages(*FindProfile(profile_))) return AddAudioAlone();
    if (!FindProfile(profile_)->has_token_ids()) {
      return AddFamily(config, processor);
    }
    AddText();
    BALLAST_RETURN_IF_ERROR(AddProcessor(processor));
    choice_.has_costs = ModelCost(seen_.config).ok();
    return absl::OkStatus();
  }

  void Add(const std::string& key, const std::string& value,
           const std::string& comment) {
    choice_.lines.push_back({key, value, comment});
  }

  void WithoutModel() {
    profile_ = has_clips_ ? "qwen2_5_omni" : "qwen2_5_vl";
    Add("profile", profile_,
        has_clips_ ? "how images and clips become tokens: --model-dir"
                   : "how images become patches: --model-dir");
    Add("tokenizer", "bytes", "one token a byte; your model's tokenizer.json");
    Add("max_pixels", absl::StrCat(kUsualMaxPixels),
        "larger images are shrunk to this");
    choice_.unsure.push_back(absl::StrCat(
        "the model: no config.json was found, so the profile is ", profile_,
        " and each byte of text is a token. Name your model's folder with "
        "--model-dir before you train"));
    choice_.most_image_tokens = kUsualMaxPixels / (28 * 28) + 2;
  }

  // A model of audio alone.
  absl::Status AddAudioAlone() {
    if (!seen_.has_tokenizer) return NoTokenizer("clips of audio");
    const v1::ModelProfile& profile = *FindProfile(profile_);
    if (HasChat(profile)) {
      AddTokenizer();
      return absl::OkStatus();
    }
    if (profile.chat_template().empty() &&
        KnownTemplate(seen_.chat_template).empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          seen_.folder,
          ": found no chat template like ChatML or Llama 3's, and ", profile_,
          " has no template; write it as model.custom_template "
          "(docs/text.md)"));
    }
    AddText();
    return absl::OkStatus();
  }

  absl::Status NoTokenizer(absl::string_view media) const {
    return absl::InvalidArgumentError(absl::StrCat(
        seen_.folder, ": found no tokenizer.json; profile ", profile_,
        " needs its model's own tokens for ", media,
        ". Python's AutoTokenizer.from_pretrained(FOLDER).save_pretrained("
        "FOLDER) writes one; or name a folder that has it with --model-dir"));
  }

  // A model other than Qwen's: its profile has all that its files do not
  // state.
  absl::Status AddFamily(const Json& config, const Json& processor) {
    const ImageFamily& family = *FindImageFamily(profile_);
    BALLAST_RETURN_IF_ERROR(CheckNumbers(config, processor, family));
    AddRules();
    if (!seen_.has_tokenizer) return NoTokenizer("images");
    AddTokenizer();
    BALLAST_RETURN_IF_ERROR(AddFamilyTemplate());
    AddBounds(processor, family);
    v1::Model model;
    model.set_profile(profile_);
    BALLAST_RETURN_IF_ERROR(ApplyModelProfile(&model));
    AddThree(processor, "image_mean", "mean", model.mean());
    AddThree(processor, "image_std", "std", model.std());
    BALLAST_ASSIGN_OR_RETURN(choice_.most_image_tokens,
                             MostPlaceholders(profile_));
    choice_.unsure.push_back(absl::StrCat(
        "the crops of images: taken from the released checkpoints of ",
        profile_, "; `ballast-server inspect family --model ", profile_,
        "` prints their numbers"));
    return absl::OkStatus();
  }

  // Says whose rules hold, and of what.
  void AddRules() {
    const v1::ModelProfile& profile = *FindProfile(profile_);
    if (!profile.has_transformers()) return;
    const std::string sections =
        absl::StrJoin(DifferentSections(profile), ", ");
    Add("rules", "authors", absl::StrCat("transformers has other ", sections));
    choice_.found.push_back(absl::StrCat(
        "model.rules: authors, by ", profile.trained_by(),
        ". The checkpoint's files and its class in transformers have other ",
        sections, ": model.rules: transformers follows them"));
  }

  absl::Status CheckNumbers(const Json& config, const Json& processor,
                            const ImageFamily& family) const {
    std::vector<std::string> faults;
    for (const NumberDifference& one :
         DifferentNumbers(config, processor, seen_.processor_file, family)) {
      faults.push_back(absl::StrCat(one.key, ": found ", one.found,
                                    ", where profile ", profile_, " has ",
                                    one.family_key, " ", one.wanted));
    }
    if (faults.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        seen_.folder, "/", absl::StrJoin(faults, "\n"),
        "\nThe checkpoint makes other crops of an image than the released one. "
        "Print the profile with `ballast-server inspect family --model ",
        profile_,
        "`, change these numbers and put it into the configuration as "
        "model.image_family (docs/families.md)"));
  }

  // Bounds that the family's rule reads and that are not the profile's.
  void AddBounds(const Json& processor, const ImageFamily& family) {
    const auto add = [&](const char* key, std::optional<uint64_t> pixels,
                         uint64_t usual) {
      if (!pixels.has_value() || *pixels == usual || *pixels == 0 ||
          !ReadsNumber(family.rule, key)) {
        return;
      }
      Add(key, absl::StrCat(*pixels), seen_.processor_file);
    };
    add("min_pixels", MinPixels(processor), family.min_pixels);
    add("max_pixels", MaxPixels(processor), family.max_pixels);
  }

  // Checkpoints of one family of images may have several templates.
  absl::Status AddFamilyTemplate() {
    const std::string& own = seen_.own_template;
    const v1::ModelProfile& profile = *FindProfile(profile_);
    std::string fault = TemplateFault(FindChat(profile_), own);
    if (fault.empty() && HasChat(profile)) return absl::OkStatus();
    std::string known =
        KnownTemplate(fault.empty() ? seen_.chat_template : own);
    for (const std::string& other : profile.other_templates()) {
      if (TemplateFault(FindChat(other), own).empty()) {
        known = other;
      }
    }
    fault = fault.empty()
                ? " is not covered"
                : absl::StrCat(" is not the model's own, which ", fault);
    if (known.empty() && !own.empty()) {
      Add("chat_template", "checkpoint", "the model's own, rendered by jinja2");
      choice_.found.push_back(
          absl::StrCat("chat_template: checkpoint, since the template of ",
                       profile_, fault));
      return absl::OkStatus();
    }
    if (known.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          seen_.folder, ": the chat template of ", profile_, fault,
          ", and the model's own is neither ChatML nor Llama 3's; write it as "
          "model.custom_template, or render the texts with its tokenizer and "
          "store them as token ids (docs/text.md)"));
    }
    Add("chat_template", known, "by the model's chat template");
    choice_.unsure.push_back(absl::StrCat(
        "the chat template: the one of ", profile_, fault,
        ", so it was guessed from the model's files; compare `ballast-server "
        "inspect conversation` with the model's own"));
    return absl::OkStatus();
  }

  absl::Status ChooseProfile(const Json& config, const Json& processor) {
    const std::string type =
        config.contains("model_type") && config["model_type"].is_string()
            ? config["model_type"].get<std::string>()
            : "";
    profile_ = FindCheckpoint(config, processor);
    if (!profile_.empty() && type.empty()) {
      choice_.unsure.push_back(absl::StrCat(
          "the profile: there is no config.json, and several families share ",
          "the image processor; took ", profile_));
    }
    if (profile_.empty() && type != "llava_qwen" &&
        (config.contains("vision_config") || !processor.empty()) &&
        seen_.has_tokenizer && !seen_.own_template.empty()) {
      AddUnknown(type, config, processor);
      return absl::OkStatus();
    }
    if (profile_.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          seen_.folder, "/config.json: model_type: found \"", type,
          "\"; wanted one of ", absl::StrJoin(KnownModelTypes(), ", "),
          type == "llava_qwen"
              ? ". That type names two models: set model.profile to "
                "llava_onevision or llava_video by hand (docs/video.md)"
              : "",
          ". Name the folder of one of these with --model-dir. For another "
          "model write a file with its numbers (docs/families.md)"));
    }
    Add("profile", profile_,
        type.empty() ? "by " + seen_.processor_file
                     : absl::StrCat("config.json: model_type ", type));
    choice_.found.push_back(
        absl::StrCat("model ", seen_.folder, ": profile ", profile_));
    return absl::OkStatus();
  }

  // A model that no release knows: its images by a recipe, its text by its own
  // template.
  void AddUnknown(const std::string& type, const Json& config,
                  const Json& processor) {
    OwnModel own = MakeModel(type, config, processor);
    Add("profile", Json("./" + own.profile.name).dump(),
        absl::StrCat("model_type ", type, " has none: check its numbers"));
    AddTokenizer();
    Add("chat_template", "checkpoint", "the model's own, rendered by jinja2");
    Add("recipe", own.recipe.name, "to be completed: it plans images");
    choice_.unsure.push_back(absl::StrCat(
        "the images of ", type, ", which no profile describes: complete ",
        own.profile.name, " and ", own.recipe.name,
        " as docs/unknown_model.md says, and compare what a batch holds with "
        "the model's processor before you train"));
    choice_.unsure.insert(choice_.unsure.end(), own.unsure.begin(),
                          own.unsure.end());
    choice_.files = {std::move(own.profile), std::move(own.recipe)};
    choice_.most_image_tokens = kUsualMaxPixels / (28 * 28) + 2;
    choice_.found.push_back(absl::StrCat(
        "model ", seen_.folder, ": model_type ", type, ", without a profile"));
  }

  void AddTokenizer() {
    const Json path = seen_.folder == "." ? "tokenizer.json"
                                          : seen_.folder + "/tokenizer.json";
    Add("tokenizer", path.dump(), "the model's own");
  }

  void AddText() {
    if (seen_.has_tokenizer) {
      AddTokenizer();
    } else {
      Add("tokenizer", "bytes",
          "one token a byte; your model's tokenizer.json");
      choice_.unsure.push_back(absl::StrCat(
          "the tokenizer: ", seen_.folder,
          " has no tokenizer.json, so each byte of text is a token"));
    }
    // Searches no other file: lists of tokens have ChatML's marks, too.
    const std::string& own = seen_.own_template;
    const std::string known =
        KnownTemplate(own.empty() ? seen_.chat_template : own);
    if (known.empty() && !own.empty() && seen_.has_tokenizer) {
      Add("chat_template", "checkpoint", "the model's own, rendered by jinja2");
      choice_.found.push_back(
          "chat_template: checkpoint, since the model's own is neither ChatML "
          "nor Llama 3's");
      return;
    }
    if (known.empty()) {
      Add("chat_template", "chatml", "as the Qwen models have it");
    } else {
      Add("chat_template", known, "by the model's chat template");
    }
    constexpr char kPrompt[] = "You are a helpful assistant.";
    if (known != "llama3" && absl::StrContains(seen_.chat_template, kPrompt)) {
      Add("system_prompt", Json(kPrompt).dump(),
          "as the template adds if the text has none");
    }
  }

  static std::optional<uint64_t> Number(const Json& json, const char* key) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number_unsigned()) return {};
    return found->get<uint64_t>();
  }

  // The chat template of ours that `text`, the model's own, resembles, or "".
  static std::string KnownTemplate(const std::string& text) {
    if (absl::StrContains(text, "<|start_header_id|>")) return "llama3";
    if (absl::StrContains(text, "<|im_start|>")) return "chatml";
    return "";
  }

  // Bounds of an image's pixels, by their own keys or as edges of `size`.
  static std::optional<uint64_t> MinPixels(const Json& processor) {
    return PixelBound(processor, "min_pixels", "shortest_edge");
  }
  static std::optional<uint64_t> MaxPixels(const Json& processor) {
    return PixelBound(processor, "max_pixels", "longest_edge");
  }
  static std::optional<uint64_t> PixelBound(const Json& processor,
                                            const char* key, const char* edge) {
    const std::optional<uint64_t> pixels = Number(processor, key);
    const auto size = processor.find("size");
    if (pixels.has_value() || size == processor.end() || !size->is_object()) {
      return pixels;
    }
    return Number(*size, edge);
  }

  absl::Status AddProcessor(const Json& processor) {
    v1::Model model;
    model.set_profile(profile_);
    BALLAST_RETURN_IF_ERROR(ApplyModelProfile(&model));
    const std::optional<uint64_t> least = MinPixels(processor);
    if (least.has_value()) {
      Add("min_pixels", absl::StrCat(*least), seen_.processor_file);
    }
    const std::optional<uint64_t> stated = MaxPixels(processor);
    const uint64_t most = stated.value_or(kUsualMaxPixels);
    Add("max_pixels", absl::StrCat(most),
        stated.has_value() ? seen_.processor_file
                           : "larger images are shrunk to this");
    if (!stated.has_value()) {
      choice_.unsure.push_back(
          "max_pixels: no preprocessor_config.json says it; took about one "
          "megapixel");
    }
    const uint64_t patch =
        AddSize(processor, "patch_size", "patch", model.patch());
    const uint64_t merge =
        AddSize(processor, "merge_size", "merge", model.merge());
    AddSize(processor, "temporal_patch_size", "temporal_patch",
            model.temporal_patch());
    AddThree(processor, "image_mean", "mean", model.mean());
    AddThree(processor, "image_std", "std", model.std());
    // In doubles: the numbers of a file that somebody wrote may be anything.
    const double side = static_cast<double>(patch) * static_cast<double>(merge);
    choice_.most_image_tokens =
        static_cast<uint64_t>(std::min(most / (side * side), 1e9)) + 2;
    return absl::OkStatus();
  }

  // Writes the size if it is not the profile's; returns it.
  uint64_t AddSize(const Json& processor, const char* name, const char* key,
                   uint64_t usual) {
    const uint64_t found = Number(processor, name).value_or(usual);
    if (found == usual || found == 0) return usual;
    Add(key, absl::StrCat(found), seen_.processor_file);
    return found;
  }

  template <typename Values>
  void AddThree(const Json& processor, const char* name, const char* key,
                const Values& usual) {
    const auto found = processor.find(name);
    if (found == processor.end() || !found->is_array()) return;
    if (*found == Json(std::vector<double>(usual.begin(), usual.end()))) return;
    Add(key, found->dump(), seen_.processor_file);
  }

  const SeenModel& seen_;
  const bool has_clips_;
  ModelChoice choice_;
  std::string profile_;
};

}  // namespace

absl::StatusOr<ModelChoice> ChooseModel(const SeenModel& seen, bool has_clips) {
  return Chooser(seen, has_clips).Choose();
}

}  // namespace ballast
