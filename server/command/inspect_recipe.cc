#include "server/command/commands.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
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
#include "server/command/init/first_samples.h"
#include "server/config/config_loader.h"
#include "server/data/record_parser.h"
#include "server/files/file.h"
#include "server/files/path_pattern.h"
#include "server/job/job_setup.h"
#include "server/media/encode.h"
#include "server/media/image/crop_maker.h"
#include "server/media/image/image.h"
#include "server/model/model_images.h"
#include "server/recipe/recipe.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

struct InspectRecipeOptions {
  std::string config;
  std::string source;
  uint64_t sample = 0;
  // Of model.recipe.
  bool images = false;
  uint64_t epoch = 0;
  std::string crops;
};

void Print(const Json& json) {
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace)
            << std::endl;
}

double MicrosecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now() - begin)
      .count();
}

// JSON as it is, other texts as a string.
Json ToJson(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json(text) : json;
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

// The crops of an image and their bytes, made as servers make them.
absl::StatusOr<std::vector<RgbImage>> MakeImage(const ModelImages& model,
                                                const PlanFacts& facts,
                                                const ImagePlan& plan,
                                                const RgbImage& image,
                                                const Resampling& resampling) {
  if (!model.has_pixels()) return MakeCrops(image, plan, resampling);
  std::vector<RgbImage> crops;
  for (const PlanStage& stage : plan.stages) {
    for (uint32_t i = 0; i < stage.rows * stage.columns; ++i) {
      crops.push_back({stage.crop.width, stage.crop.height,
                       std::vector<uint8_t>(size_t{3} * stage.crop.width *
                                            stage.crop.height)});
    }
  }
  std::vector<absl::Span<uint8_t>> places;
  for (RgbImage& crop : crops) places.push_back(absl::MakeSpan(crop.pixels));
  BALLAST_RETURN_IF_ERROR(
      model.recipe()->MakePixels(facts, plan, image.pixels, places));
  return crops;
}

Json TextJson(const RecipePlan& plan) {
  Json text = Json::array();
  for (const ImageTextPiece& piece : plan.text) {
    text.push_back(piece.placeholders != 0 ? Json(piece.placeholders)
                                           : Json(piece.text));
  }
  return text;
}

absl::Status Write(const std::string& path, const std::string& bytes) {
  BALLAST_ASSIGN_OR_RETURN(File file, File::Create(path));
  return file.Write(bytes);
}

// What model.recipe makes of the images of a sample of the index.
absl::Status InspectImages(const InspectRecipeOptions& options,
                           const LoadedConfig& config) {
  BALLAST_ASSIGN_OR_RETURN(const OpenedJob job, OpenJob(config));
  uint32_t number = 0;
  while (number < job.sources.size() && !options.source.empty() &&
         job.config.sources(number).name() != options.source) {
    ++number;
  }
  if (number == job.sources.size()) {
    return absl::NotFoundError(absl::StrCat("no source ", options.source));
  }
  const SampleSource& source = *job.sources[number];
  if (options.sample >= source.index().size()) {
    return absl::NotFoundError(
        absl::StrCat("source ", job.config.sources(number).name(), " has ",
                     source.index().size(), " samples; wanted number ",
                     options.sample, ", from 0"));
  }
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                           source.index().sample(options.sample));
  const SampleImages images =
      GetSampleImages(job.config, number, options.sample, options.epoch,
                      indexed.media.images());
  BALLAST_ASSIGN_OR_RETURN(
      const FaultOr<RawSample> raw,
      source.Read(options.sample, {.text = false, .images = true}));
  if (!raw.ok()) return raw.fault().ToStatus();
  const ModelImages& model = job.text->images();
  const ImageOptions decoding = GetImageOptions(job.config.model());
  ImageDecoder decoder(decoding);
  Json json = {
      {"source", images.source},  {"split", images.split},
      {"sample", options.sample}, {"epoch", options.epoch},
      {"name", raw->name},        {"recipe", job.config.model().recipe()},
      {"images", Json::array()}};
  const std::vector<const RawMedium*> files = raw->of(MediumKind::kImage);
  for (size_t i = 0; i < images.size(); ++i) {
    const auto context = [&](const absl::Status& status) {
      return Annotate(status, absl::StrCat(raw->name, ": image ", i));
    };
    const auto begin = std::chrono::steady_clock::now();
    const auto plan = model.Plan(images, i);
    if (!plan.ok()) return context(plan.status());
    Json image = {{"width", images.sides[i].width},
                  {"height", images.sides[i].height},
                  {"tokens", plan->placeholders}};
    if (model.recipe()->has_plan()) {
      image["plan_microseconds"] = MicrosecondsSince(begin);
    }
    if (plan->recipe != nullptr && !plan->recipe->text.empty()) {
      image["text"] = TextJson(*plan->recipe);
    }
    const auto decoded = decoder.Decode(files[i]->file());
    if (!decoded.ok()) return context(decoded.status());
    const auto made_at = std::chrono::steady_clock::now();
    const auto crops =
        MakeImage(model, images.Get(i), *plan, *decoded, decoding.resampling);
    if (!crops.ok()) return context(crops.status());
    image["pixels_microseconds"] = MicrosecondsSince(made_at);
    model.recipe()->Restart();
    const auto again =
        MakeImage(model, images.Get(i), *plan, *decoded, decoding.resampling);
    bool is_same = again.ok();
    for (size_t k = 0; k < crops->size(); ++k) {
      const RgbImage& crop = (*crops)[k];
      is_same = is_same && (*again)[k].pixels == crop.pixels;
      Json shown = {{"width", crop.width}, {"height", crop.height}};
      if (!options.crops.empty()) {
        const std::string path =
            absl::StrCat(options.crops, "/", images.source, "-", options.sample,
                         "-", options.epoch, "-", i, "-", k, ".png");
        BALLAST_ASSIGN_OR_RETURN(
            const std::string png,
            EncodePng(crop.pixels, crop.width, crop.height));
        BALLAST_RETURN_IF_ERROR(Write(path, png));
        shown["file"] = path;
      }
      image["crops"].push_back(std::move(shown));
    }
    image["same_in_another_process"] = is_same;
    json["images"].push_back(std::move(image));
  }
  Print(json);
  return absl::OkStatus();
}

absl::Status InspectRecipe(const InspectRecipeOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config,
                           LoadConfig(options.config));
  BALLAST_RETURN_IF_ERROR(ConfigureProcess(config.config));
  const bool cooks = std::any_of(
      config.config.sources().begin(), config.config.sources().end(),
      [](const v1::Source& source) { return !source.recipe().empty(); });
  if (options.images || !cooks) {
    if (!config.config.model().recipe().empty()) {
      return InspectImages(options, config);
    }
    if (options.images) {
      return absl::NotFoundError(
          absl::StrCat(options.config, ": wanted model.recipe for --images"));
    }
  }
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
        "with a recipe; wanted sources[].recipe, or model.recipe, in ",
        options.config));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const Recipe> recipe,
                           Recipes::OfProcess().Get(ResolvePath(
                               config.directory, source->recipe())));
  BALLAST_ASSIGN_OR_RETURN(
      const RawRecord raw,
      FindRecord(*source, config.directory, options.sample, /*reports=*/true));
  const RecipeRecord* const given = &raw.given;
  Json json = {{"source", source->name()},
               {"recipe", recipe->name()},
               {"record", ToJson(RecordJson(*given))}};
  const auto begin = std::chrono::steady_clock::now();
  const auto answer = recipe->Cook({&given, 1})[0];
  const double time = MicrosecondsSince(begin);
  if (!answer.ok()) {
    Print(json);
    return Annotate(answer.status(), given->name);
  }
  json["sample"] =
      answer->has_value() ? ToJson(**answer, *given) : Json(nullptr);
  json["microseconds"] = time;
  recipe->Restart();
  const auto again = recipe->Cook({&given, 1})[0];
  const bool is_same =
      again.ok() && again->has_value() == answer->has_value() &&
      (!again->has_value() || (*again)->hash == (*answer)->hash);
  json["same_in_another_process"] = is_same;
  Print(json);
  return absl::OkStatus();
}

}  // namespace

void AddInspectRecipe(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<InspectRecipeOptions>();
  Command* command = line->AddCommand(
      inspect, "recipe",
      R"(Runs a recipe on one record of a source, without an index, or the recipe of the
model on the images of one sample of the index.
Of a source, one JSON object with the keys: source, recipe (hash and versions),
record {name, line or columns, media [{name, bytes, holds}]}, sample
{conversation or document, images, videos}, or null for a record that is left
out, microseconds (of one record alone, with its way to the process),
same_in_another_process.
Of model.recipe (--images, or no source has a recipe): source, split, sample,
epoch, name, recipe, images [{width, height, tokens, plan_microseconds, text,
pixels_microseconds, crops [{width, height, file}], same_in_another_process}].
The crops are those that ranks get in that epoch; --crops writes them as PNG.)",
      "  ballast-server inspect recipe --config ballast.yaml --sample 17\n"
      "  ballast-server inspect recipe --config ballast.yaml --source chats\n"
      "  ballast-server inspect recipe --config a.yaml --images --crops crops",
      [options] { return InspectRecipe(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .Required()
      .TypeName("FILE");
  command
      ->AddText("--source", &options->source,
                "name of the source; default: the first with a recipe, or "
                "with --images the first")
      .TypeName("NAME");
  command->AddWholeNumber("--sample", &options->sample,
                          "number of the record in the source's files, or of "
                          "the sample in its index, from 0");
  command->AddFlag("--images", &options->images,
                   "the recipe of the model, where sources have one, too");
  command->AddWholeNumber("--epoch", &options->epoch,
                          "epoch of the model's random numbers, from 0");
  command
      ->AddText("--crops", &options->crops,
                "existing folder that crops are written to")
      .TypeName("DIR");
}

}  // namespace ballast
