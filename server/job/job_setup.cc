#include "server/job/job_setup.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/machine.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "server/config/topology.h"
#include "server/data/index/bad_records.h"
#include "server/data/open_source.h"
#include "server/data/record_parser.h"
#include "server/data/source_files.h"
#include "server/files/path_pattern.h"
#include "server/files/storage.h"
#include "server/media/image/image.h"
#include "server/model/model_images.h"
#include "server/model/model_rows.h"
#include "server/model/model_videos.h"
#include "server/model/profiles.h"
#include "server/recipe/recipe.h"
#include "server/sample/data_fault.h"
#include "server/sample/index_format.h"
#include "server/schedule/plan_file.h"
#include "server/text/model_tokenizer.h"
#include "server/text/sample_text.h"

namespace ballast {
namespace {

// Version of the rules of conversations. Raised when they name media by other
// rules, or are refused for other reasons.
//   2: parts of images with their own bounds or size are refused, and bounds
//      next to the turns
//   3: keys and parts that name different media, and two lists of turns
//   4: preference pairs
//   5: audio
//   6: preference pairs of a source that says so
//   7: parts that name images in other places, counting marks in texts, in
//      tars and as text in Parquet; texts that spell out another mark
//   8: the same of videos and audio in tars, and of all media in Energon's
//   9: bounds of audio next to the turns, `num_frames` of a part; `weight` and
//      `train` that are text
//   10: files of media in keys that are not read
//   11: media, verdicts and values of marks in keys and members that nothing
//      reads
constexpr int kConversationRules = 11;

}  // namespace

absl::Status ConfigureProcess(const v1::Config& config) {
  const v1::Serve& serve = config.serve();
  Recipes::OfProcess().SetProcesses(serve.recipe_processes() > 0
                                        ? serve.recipe_processes()
                                        : ThreadsOrCores(serve.threads()));
  return Storage::OfProcess().Configure(config.storage());
}

IndexKey GetIndexKey(const v1::Config& config, const Tokenizer& tokenizer) {
  IndexKey key;
  // A rotated image has its sides swapped.
  key.sizes =
      absl::StrCat("exif_orientation=", config.model().exif_orientation());
  absl::StrAppend(&key.sizes, "\nconversations=", kConversationRules);
  // Samples with videos are then bad, and are not measured.
  if (!GetVideoModel(config.model()).has_value()) {
    absl::StrAppend(&key.sizes, "\nvideos=none");
  }
  // Likewise samples with images.
  const v1::ModelProfile* profile = GetProfile(config.model());
  if (profile != nullptr && !TakesImages(*profile)) {
    absl::StrAppend(&key.sizes, "\nimages=none");
  }
  key.lengths = TextLengthKey(config.model(), tokenizer);
  key.limits = TextLimitKey(config);
  key.videos = VideoPlanKey(config.model());
  // Of a source with such media, which has videos as far as keys go. Without a
  // rule samples with them are bad, and not measured.
  if (const RowsRule* rows = GetRowsRule(config.model())) {
    const RowsRule::IndexKeys of_rows = rows->index_keys(config.model());
    absl::StrAppend(&key.sizes, of_rows.facts);
    absl::StrAppend(&key.videos, of_rows.plans);
  }
  return key;
}

std::vector<const SampleSource*> OpenedJob::source_pointers() const {
  std::vector<const SampleSource*> pointers;
  for (const auto& source : sources) pointers.push_back(source.get());
  return pointers;
}

absl::StatusOr<SampleImages> SampleImagesAt(const OpenedJob& job,
                                            v1::Split split, uint64_t position,
                                            absl::Span<const ImageSize> sides) {
  BALLAST_ASSIGN_OR_RETURN(const Scheduler* const scheduler,
                           job.scheduler->OfSplit(split));
  const Scheduler::OrderedSample ordered = scheduler->OrderedAt(position);
  return GetSampleImages(job.config, ordered.source, ordered.ordinal,
                         ordered.epoch, sides);
}

absl::StatusOr<std::shared_ptr<const ImageRecipe>> OpenModelRecipe(
    v1::Config* config) {
  v1::Model* const model = config->mutable_model();
  if (model->recipe().empty()) return std::shared_ptr<const ImageRecipe>();
  for (const v1::Source& source : config->sources()) {
    if (source.format() != v1::Source::FORMAT_MOCK) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "sources: found format mock of ", source.name(),
        " with model.recipe, and what it draws knows no recipe; wanted "
        "sources of data files"));
  }
  auto recipe = Recipes::OfProcess().GetForImages(model->recipe());
  if (!recipe.ok()) return Annotate(recipe.status(), "model.recipe");
  if ((*recipe)->has_plan() &&
      config->balance().placement() == v1::Balance::PLACEMENT_SPLIT) {
    return absl::InvalidArgumentError(
        "balance.placement: found split with an image_plan of model.recipe, "
        "whose tokens need not be its merged patches; wanted paired");
  }
  if ((*recipe)->draws() &&
      config->batch().on_too_long() == v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT) {
    return absl::InvalidArgumentError(
        "batch.on_too_long: found truncate_text with a model.recipe whose "
        "image_plan takes rng: a text would lose another end in each epoch; "
        "wanted error or skip");
  }
  model->set_recipe((*recipe)->name());
  return recipe;
}

namespace {

// The rows of order.plan; null if it is not set.
absl::StatusOr<std::shared_ptr<const PlanRows>> OpenPlan(const OpenedJob& job) {
  const std::string& path = job.config.order().plan();
  if (path.empty()) return std::shared_ptr<const PlanRows>();
  std::vector<PlanSource> sources;
  for (int i = 0; i < job.config.sources_size(); ++i) {
    const v1::Source& source = job.config.sources(i);
    sources.push_back({source.name(), source.split() == v1::SPLIT_TRAIN,
                       job.sources[i].get()});
  }
  auto rows = OpenPlanFile(path, std::move(sources));
  if (!rows.ok()) return Annotate(rows.status(), "order.plan");
  return std::shared_ptr<const PlanRows>(*std::move(rows));
}

// Keeps tables of steps next to the index file.
void KeepStarts(const std::string& index_file, SchedulerInputs* inputs) {
  const std::filesystem::path folder =
      std::filesystem::path(index_file).parent_path();
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) return;
  inputs->load_starts = [folder](const std::string& name) {
    return LoadStepTable((folder / name).string());
  };
  inputs->save_starts = [folder](const std::string& name,
                                 const std::vector<uint64_t>& starts) {
    const absl::Status saved = SaveStepTable((folder / name).string(), starts);
    if (saved.ok()) return;
    LogInfo("the table of steps is not kept, so each start finds it anew: ",
            saved.message());
  };
}

}  // namespace

absl::StatusOr<OpenedJob> OpenJob(const LoadedConfig& config) {
  BALLAST_RETURN_IF_ERROR(ConfigureProcess(config.config));
  OpenedJob job;
  job.config = config.config;
  job.loaded = config;
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const ImageRecipe> recipe,
                           OpenModelRecipe(&job.config));
  std::unique_ptr<const TemplateRenderer> renderer;
  BALLAST_ASSIGN_OR_RETURN(
      job.tokenizer, OpenModelTokenizer(job.config.mutable_model(), &renderer));
  BALLAST_ASSIGN_OR_RETURN(
      job.text, ModelText::Create(job.config.model(), job.tokenizer.get(),
                                  std::move(renderer), recipe));
  const IndexKey key = GetIndexKey(job.config, *job.tokenizer);
  std::vector<const SourceIndex*> indexes;
  for (const v1::Source& source : job.config.sources()) {
    BALLAST_ASSIGN_OR_RETURN(
        std::unique_ptr<SampleSource> opened,
        OpenAnySource(source, job.config, config.directory, key));
    if (source.format() != v1::Source::FORMAT_MOCK) {
      const IndexFile& index =
          static_cast<const FileSource&>(*opened).index_file();
      v1::LeftOut left_out = GetLeftOut(source, index);
      BALLAST_RETURN_IF_ERROR(
          CheckLeftOut(source, left_out, BadRecordsPath(index.path())));
      if (left_out.bad() > 0) job.left_out.push_back(std::move(left_out));
    }
    indexes.push_back(&opened->index());
    job.sources.push_back(std::move(opened));
    if (source.index().empty()) continue;
    job.index_files.push_back(IndexPath(source, config.directory, key));
  }
  v1::Config scheduled = job.config;
  scheduled.mutable_model()->set_tokenizer(job.tokenizer->digest());
  for (v1::Source& source : *scheduled.mutable_sources()) {
    BALLAST_ASSIGN_OR_RETURN(*source.mutable_recipe(),
                             GetRecipeName(source, config.directory));
  }
  SchedulerInputs inputs;
  inputs.recipe = recipe;
  inputs.left_out = job.left_out;
  BALLAST_ASSIGN_OR_RETURN(inputs.plan, OpenPlan(job));
  if (!job.index_files.empty()) KeepStarts(job.index_files[0], &inputs);
  BALLAST_ASSIGN_OR_RETURN(job.scheduler,
                           Scheduler::Create(scheduled, indexes, inputs));
  return job;
}

absl::StatusOr<ServerIdentity> IdentifyServer(const v1::Config& config) {
  const std::vector<std::string> listen(config.serve().listen().begin(),
                                        config.serve().listen().end());
  BALLAST_ASSIGN_OR_RETURN(const size_t number, FindServer(config, listen));
  const v1::Topology::Server& server = config.topology().servers(number);
  ServerIdentity identity;
  identity.name = server.address();
  for (const auto& [name, list] : server.ranks()) {
    BALLAST_ASSIGN_OR_RETURN(const std::vector<uint32_t> ranks,
                             ParseRankList(list));
    identity.ranks += ranks.size();
    const std::optional<v1::Module> module = ParseModule(name);
    if (ranks.empty() || !module.has_value()) continue;
    identity.ranks_of[*module].insert(ranks.begin(), ranks.end());
    v1::Role& first = identity.first_ranks.emplace_back();
    first.set_module(*module);
    first.set_dp_rank(*std::min_element(ranks.begin(), ranks.end()));
  }
  std::sort(identity.first_ranks.begin(), identity.first_ranks.end(),
            [](const v1::Role& a, const v1::Role& b) {
              return a.module() < b.module();
            });
  return identity;
}

absl::StatusOr<std::unique_ptr<AheadFetcher>> MakeAheadFetcher(
    const OpenedJob& job, const ServerIdentity& identity,
    const Scheduler* scheduler) {
  AheadFetcher::Settings settings;
  settings.sources = job.source_pointers();
  if (std::none_of(settings.sources.begin(), settings.sources.end(),
                   [](const SampleSource* s) { return s->InStore(); })) {
    return nullptr;
  }
  settings.scheduler = scheduler == nullptr ? job.scheduler.get() : scheduler;
  for (const auto& [module, ranks] : identity.ranks_of) {
    ServedModule& served = settings.served[module];
    served.ranks = ranks;
    BALLAST_ASSIGN_OR_RETURN(served.rule,
                             GetRule(job.scheduler->job(), module));
  }
  const v1::Storage& storage = job.config.storage();
  settings.cache = Storage::OfProcess().cache();
  // The rest is for ranges that readers fetch on demand.
  settings.memory = storage.memory() / 2;
  settings.ahead_steps = storage.ahead_steps();
  settings.threads = std::max(storage.connections() / 2, 1u);
  return std::make_unique<AheadFetcher>(std::move(settings));
}

std::string RendezvousAddress(const v1::Config& config) {
  const v1::Topology& topology = config.topology();
  if (!topology.meeting().empty()) return topology.meeting();
  return topology.servers_size() > 0 ? topology.servers(0).address() : "";
}

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
    const std::vector<const RawMedium*> files = raw->of(MediumKind::kImage);
    std::vector<uint64_t> hashes;
    for (uint64_t epoch = 0; epoch < 2; ++epoch) {
      const SampleImages images = GetSampleImages(
          config_, number_, ordinal, epoch, indexed.media.images());
      for (size_t i = 0; i < images.size(); ++i) {
        const auto plan = model_.Plan(images, i);
        if (!plan.ok()) return fault(plan.status());
        if (plan->recipe != nullptr) {
          hashes.push_back(Checksum(plan->recipe->json));
        }
        if (!model_.has_pixels()) continue;
        const auto decoded = decoder_.Decode(files[i]->file());
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
