#include "server/job/verify_recipes.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "server/config/model_images.h"
#include "server/config/path_pattern.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/open_source.h"
#include "server/image/image.h"
#include "server/job/job_setup.h"
#include "server/recipe/image_recipe.h"
#include "server/recipe/recipe.h"
#include "server/text/model_tokenizer.h"

namespace ballast {
namespace {

// Samples spread over an index, the last one first.
std::vector<uint64_t> Spread(uint64_t size, uint64_t samples) {
  std::vector<uint64_t> ordinals(std::min(samples, size));
  for (uint64_t i = 0; i < ordinals.size(); ++i) {
    ordinals[i] = size - 1 - i * size / ordinals.size();
  }
  return ordinals;
}

// Cooks every sample of `ordinals` again, which FileSource compares with the
// index.
absl::Status CookAgain(const FileSource& source,
                       absl::Span<const uint64_t> ordinals) {
  for (const uint64_t ordinal : ordinals) {
    BALLAST_ASSIGN_OR_RETURN(
        const FaultOr<RawSample> sample,
        source.Read(ordinal, {.text = true, .images = false}));
    if (!sample.ok()) {
      return absl::FailedPreconditionError(sample.fault().reason());
    }
  }
  return absl::OkStatus();
}

// `open` opens the source: a source keeps answers that it has had.
absl::Status VerifyCook(
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<FileSource>>()> open,
    const Recipe& recipe, std::vector<uint64_t> ordinals) {
  for (int pass = 0; pass < 2; ++pass) {
    BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<FileSource> source, open());
    recipe.Restart();
    BALLAST_RETURN_IF_ERROR(CookAgain(*source, ordinals));
    std::reverse(ordinals.begin(), ordinals.end());
  }
  return absl::OkStatus();
}

// What the model's recipe makes of samples of one source.
class ImageVerifier {
 public:
  ImageVerifier(const v1::Config* config, uint32_t number,
                const FileSource* source, const ModelImages* model)
      : config_(*config),
        number_(number),
        source_(*source),
        model_(*model),
        decoder_(GetImageOptions(config->model())) {}

  absl::Status Verify(std::vector<uint64_t> ordinals) {
    std::vector<std::vector<uint64_t>> first;
    for (int pass = 0; pass < 2; ++pass) {
      model_.recipe()->Restart();
      for (size_t i = 0; i < ordinals.size(); ++i) {
        BALLAST_ASSIGN_OR_RETURN(std::vector<uint64_t> made, Make(ordinals[i]));
        if (pass == 0) {
          first.push_back(std::move(made));
        } else if (made != first[ordinals.size() - 1 - i]) {
          return absl::FailedPreconditionError(absl::StrCat(
              "sample ", ordinals[i],
              ": model.recipe made other plans or pixels of it in another "
              "process: a recipe must be pure"));
        }
      }
      std::reverse(ordinals.begin(), ordinals.end());
    }
    return absl::OkStatus();
  }

 private:
  // Hashes of the plan and the pixels of each image, in two epochs.
  absl::StatusOr<std::vector<uint64_t>> Make(uint64_t ordinal) {
    const auto fault = [&](const absl::Status& status) {
      const std::string text =
          absl::StrCat("sample ", ordinal, ": ", status.message());
      return IsDataFault(status) ? absl::FailedPreconditionError(text)
                                 : absl::Status(status.code(), text);
    };
    BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                             source_.index().sample(ordinal));
    BALLAST_ASSIGN_OR_RETURN(
        const FaultOr<RawSample> raw,
        source_.Read(ordinal, {.text = false, .images = true}));
    if (!raw.ok()) return fault(raw.fault().ToStatus());
    std::vector<uint64_t> hashes;
    for (uint64_t epoch = 0; epoch < 2; ++epoch) {
      const SampleImages images =
          GetSampleImages(config_, number_, ordinal, epoch, indexed.images);
      for (size_t i = 0; i < images.size(); ++i) {
        const auto plan = model_.Plan(images, i);
        if (!plan.ok()) return fault(plan.status());
        if (plan->recipe != nullptr) {
          hashes.push_back(Checksum(plan->recipe->json));
        }
        if (!model_.has_pixels()) continue;
        const auto decoded = decoder_.Decode(raw->image(i));
        if (!decoded.ok()) return fault(decoded.status());
        std::vector<std::vector<uint8_t>> crops;
        for (const PlanStage& stage : plan->stages) {
          crops.resize(crops.size() + stage.rows * stage.columns,
                       std::vector<uint8_t>(size_t{3} * stage.crop.height *
                                            stage.crop.width));
        }
        std::vector<absl::Span<uint8_t>> places;
        for (auto& crop : crops) places.push_back(absl::MakeSpan(crop));
        const absl::Status made = model_.recipe()->MakePixels(
            images.Get(i), *plan, decoded->pixels, places);
        if (!made.ok()) return fault(made);
        for (const auto& crop : crops) {
          hashes.push_back(Checksum(absl::string_view(
              reinterpret_cast<const char*>(crop.data()), crop.size())));
        }
      }
    }
    return hashes;
  }

  const v1::Config& config_;
  const uint32_t number_;
  const FileSource& source_;
  const ModelImages& model_;
  ImageDecoder decoder_;
};

}  // namespace

absl::StatusOr<std::vector<RecipeCheck>> VerifyRecipes(
    const LoadedConfig& config, uint64_t samples) {
  BALLAST_RETURN_IF_ERROR(ConfigureProcess(config.config));
  v1::Config c = config.config;
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const ImageRecipe> of_model,
                           OpenModelRecipe(&c));
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                           OpenModelTokenizer(c.mutable_model()));
  const IndexKey key = GetIndexKey(c, *tokenizer);
  BALLAST_ASSIGN_OR_RETURN(const ModelImages model,
                           ModelImages::Create(c.model(), of_model));
  std::vector<RecipeCheck> all;
  for (int i = 0; i < c.sources_size(); ++i) {
    const v1::Source& source = c.sources(i);
    if (source.recipe().empty() && of_model == nullptr) continue;
    BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<FileSource> opened,
                             OpenSource(source, config.directory, key));
    const std::vector<uint64_t> ordinals =
        Spread(opened->index().size(), samples);
    absl::Status same;
    if (!source.recipe().empty()) {
      BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const Recipe> recipe,
                               Recipes::OfProcess().Get(ResolvePath(
                                   config.directory, source.recipe())));
      same =
          VerifyCook([&] { return OpenSource(source, config.directory, key); },
                     *recipe, ordinals);
      all.push_back({source.name(), false, ordinals.size()});
    }
    if (same.ok() && of_model != nullptr) {
      same = ImageVerifier(&c, i, opened.get(), &model).Verify(ordinals);
      all.push_back({source.name(), true, ordinals.size()});
    }
    if (!same.ok()) {
      return Annotate(same, absl::StrCat("source ", source.name()));
    }
  }
  return all;
}

}  // namespace ballast
