#include "server/config/config_loader.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <numeric>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "server/config/config_validate.h"
#include "server/config/metadataset.h"
#include "server/config/model_cost.h"
#include "server/config/topology.h"
#include "server/files/path_pattern.h"
#include "server/files/storage.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/settings/config_keys.h"
#include "server/settings/config_yaml.h"
#include "server/settings/key_report.h"

namespace ballast {
namespace {

// A configuration of a thousand servers takes a tenth of this.
constexpr size_t kMaxFileBytes = size_t{1} << 20;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) {
    const absl::Status status =
        absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be opened"));
    if (!absl::IsNotFound(status)) return status;
    return absl::NotFoundError(
        absl::StrCat(status.message(),
                     "; wanted a configuration, as `ballast-server init "
                     "FOLDER --out ",
                     path, "` writes one"));
  }
  std::string text(kMaxFileBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be read"));
  }
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":1: found more than ", kMaxFileBytes,
                     " bytes; wanted a configuration"));
  }
  return text;
}

// The result is absolute, so that a resolved path stays valid.
std::string GetDirectory(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  const std::string whole = error ? path : absolute.string();
  const size_t slash = whole.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : whole.substr(0, slash);
}

// Reads files, and objects of the stores that `settings` describes.
ReadText GetReader(const v1::Storage& settings) {
  return [&settings](const std::string& path,
                     size_t most) -> absl::StatusOr<std::string> {
    if (!IsStoreUrl(path)) return ReadSmallFile(path, most);
    // The process's storage may serve another configuration, so this is a
    // second one. Its ranges are read once: a cache would not pay.
    v1::Storage without_cache = settings;
    without_cache.clear_cache();
    Storage storage;
    BALLAST_RETURN_IF_ERROR(storage.Configure(without_cache));
    return ReadSmallObject(&storage, path, most);
  };
}

// A mock source draws as many images as it says at least.
void DefaultImages(const KeyReport& report, const std::string& key,
                   v1::Source* source) {
  if (!source->has_images() || report.Has(ChildKey(key, "images.max"))) return;
  v1::Source::Images& images = *source->mutable_images();
  images.set_max(std::max(1u, images.min()));
}

void DefaultSources(const KeyReport& report, v1::Config* config) {
  for (int i = 0; i < config->sources_size(); ++i) {
    v1::Source& source = *config->mutable_sources(i);
    const std::string key = ItemKey("sources", i);
    if (!report.Has(ChildKey(key, "media_root")) &&
        source.format() == v1::Source::FORMAT_JSONL) {
      source.add_media_root(".");
    }
    if (source.format() == v1::Source::FORMAT_MOCK) {
      DefaultImages(report, key, &source);
    }
    if (!report.Has(ChildKey(key, "index"))) {
      source.set_index(absl::StrCat(".ballast/", source.name(), "-*.index"));
    }
  }
}

// An unknown profile leaves the model unchanged; the validation reports it.
void DefaultModel(const KeyReport& report, v1::Model* model) {
  ApplyRules(model);
  if (!report.Has("model.chat_template")) {
    const v1::ModelProfile* profile = GetProfile(*model);
    // The validation refuses an encoder, which has no template.
    if (profile == nullptr || IsEncoder(*profile)) {
      model->set_chat_template("chatml");
    } else {
      model->set_chat_template(HasChat(*profile) ? profile->name()
                                                 : profile->chat_template());
    }
  }
  if (model->has_custom_template() &&
      !report.Has("model.custom_template.assistant.supervised")) {
    model->mutable_custom_template()->mutable_assistant()->set_supervised(true);
  }
  ApplyModelProfile(model).IgnoreError();
}

constexpr char kServers[] = "topology.servers";

// One server for all ranks.
void DefaultServers(const KeyReport& report, const v1::Serve& serve,
                    v1::Topology* topology) {
  if (report.Has(kServers)) return;
  v1::Topology::Server& server = *topology->add_servers();
  if (serve.listen_size() > 0) server.set_address(serve.listen(0));
  for (const auto& [name, module] : topology->modules()) {
    std::vector<uint32_t> ranks(module.dp());
    std::iota(ranks.begin(), ranks.end(), 0u);
    (*server.mutable_ranks())[name] = FormatRankList(ranks);
  }
}

// A cost without a coefficient is computed from the model. Where the file gives
// one and names no model, encoders cost 1 for each unit, and the language model
// nothing. `key` is the section's key. If `model` is set, ResolveModelCosts
// fills in the rest.
void DefaultCost(const KeyReport& report, absl::string_view key,
                 const v1::Config& config, v1::Balance::Cost* cost) {
  const bool states_one = std::any_of(
      ModuleKinds().begin(), ModuleKinds().end(), [&](const ModuleKind& kind) {
        const std::string module = absl::StrCat(key, ".", kind.name);
        return report.Has(ChildKey(module, "linear")) ||
               report.Has(ChildKey(module, "quadratic"));
      });
  if (!states_one && cost->model().empty()) cost->set_model(kAutoCost);
  for (const ModuleKind& kind : ModuleKinds()) {
    // Sections that are there in any case are in every fingerprint.
    if (kind.module != v1::MODULE_VISION && !IsLanguage(kind.module) &&
        DpSize(config, kind.module) == 0) {
      continue;
    }
    v1::Balance::Coefficients* of = MutableCoefficients(cost, kind.module);
    if (of == nullptr) continue;
    if (IsLanguage(kind.module) || !cost->model().empty() ||
        report.Has(absl::StrCat(key, ".", kind.name, ".linear"))) {
      continue;
    }
    of->set_linear(1);
  }
}

void DefaultBalance(const KeyReport& report, const v1::Config& config,
                    v1::Balance* balance) {
  if (!report.Has("balance.objective")) {
    const bool phases =
        !config.topology().colocated() &&
        config.packing().mode() != v1::Packing::MODE_SCHEDULED &&
        balance->algorithm() == v1::Balance::ALGORITHM_REFINED;
    balance->set_objective(phases ? v1::Balance::OBJECTIVE_PHASES
                                  : v1::Balance::OBJECTIVE_SUM);
  }
  DefaultCost(report, "balance.cost", config, balance->mutable_cost());
  for (int i = 0; i < balance->cost_changes_size(); ++i) {
    DefaultCost(report, ChildKey(ItemKey("balance.cost_changes", i), "cost"),
                config, balance->mutable_cost_changes(i)->mutable_cost());
  }
}

// Steps of so many tokens or packs have no `global`: sets it to the smallest
// number of samples that any check takes.
void DefaultBatch(const v1::Packing& packing, KeyReport* report,
                  v1::Batch* batch) {
  constexpr char kGlobal[] = "batch.global";
  if (report->Has(kGlobal) ||
      (!report->Has("batch.tokens") && !report->Has("batch.packs"))) {
    return;
  }
  report->AddKey(kGlobal, report->Locate("batch"));
  batch->set_global(batch->micro() *
                    std::max(packing.virtual_pipeline_group(), 1u));
}

// A blend has the paths of its source.
void DefaultBlends(const v1::Config& config, KeyReport* report) {
  for (int i = 0; i < config.sources_size(); ++i) {
    const std::string key = ItemKey("sources", i);
    const std::string blend = ChildKey(key, "blend");
    const std::string path = ChildKey(key, "path");
    if (config.sources(i).format() != v1::Source::FORMAT_MEGATRON ||
        !report->Has(blend)) {
      continue;
    }
    if (!report->Has(path)) {
      report->AddKey(path, report->Locate(blend));
    } else if (!report->IsFaulty(blend)) {
      report->AddFault(blend, "found with path; wanted one of the two");
    }
  }
}

// Refuses batch.global together with the keys that replace it.
void RefuseGlobal(KeyReport* report) {
  for (const char* const key : {"batch.tokens", "batch.packs"}) {
    if (!report->Has(key) || report->IsFaulty(key)) continue;
    report->AddFault(key,
                     "found with batch.global; wanted one of them, since it "
                     "takes the place of global");
  }
}

// Sets the keys that the file lacks and whose defaults follow from others.
void ComputeDefaults(const KeyReport& report, v1::Config* config) {
  DefaultSources(report, config);
  DefaultModel(report, config->mutable_model());
  DefaultServers(report, config->serve(), config->mutable_topology());
  DefaultBalance(report, *config, config->mutable_balance());
  if (!report.Has("storage.ahead_steps")) {
    v1::Storage& storage = *config->mutable_storage();
    storage.set_ahead_steps(storage.has_cache() ? 64 : 8);
  }
}

// Reads the file that model.profile names by its path, and names it by what it
// says (AddProfile).
void ReadOwnProfile(absl::string_view directory, v1::Model* model,
                    KeyReport* report) {
  constexpr char kKey[] = "model.profile";
  if (!IsProfilePath(model->profile()) || report->IsFaulty(kKey)) return;
  const std::string path = ResolvePath(directory, model->profile());
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxFileBytes);
  if (!text.ok()) {
    report->AddFault(kKey, text.status().message());
    return;
  }
  absl::StatusOr<v1::ModelProfile> profile = ParseProfile(*text, path);
  if (!profile.ok()) {
    report->AddFault(kKey, absl::StrCat("faults of the file:\n",
                                        profile.status().message()));
    return;
  }
  // Servers compare what the file says, not where it is.
  model->set_profile(AddProfile(*std::move(profile)));
}

}  // namespace

absl::StatusOr<LoadedConfig> LoadConfig(
    const std::string& path, const std::vector<std::string>& listen) {
  BALLAST_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseConfig(text, path, GetDirectory(path), listen);
}

absl::StatusOr<LoadedConfig> ParseConfig(
    absl::string_view yaml, absl::string_view name, absl::string_view directory,
    const std::vector<std::string>& listen) {
  LoadedConfig loaded;
  loaded.directory = std::string(directory);
  KeyReport report;
  ReadYaml(yaml, &loaded.config, &report);
  FillDefaults(report, &loaded.config);
  ReadOwnProfile(directory, loaded.config.mutable_model(), &report);
  ComputeDefaults(report, &loaded.config);
  const bool has_global = report.Has("batch.global");
  DefaultBatch(loaded.config.packing(), &report, loaded.config.mutable_batch());
  DefaultBlends(loaded.config, &report);
  if (!listen.empty()) loaded.config.mutable_serve()->clear_listen();
  ResolvePaths(directory, &loaded.config);
  loaded.costs = ResolveModelCosts(&loaded.config, &report);
  if (has_global) RefuseGlobal(&report);
  ValidateConfig(loaded.config, &report);
  BALLAST_RETURN_IF_ERROR(report.ToStatus(name));
  ExpandBlends(directory, GetReader(loaded.config.storage()), &loaded.config,
               &report);
  BALLAST_RETURN_IF_ERROR(report.ToStatus(name));
  if (!listen.empty()) {
    loaded.config.mutable_serve()->mutable_listen()->Assign(listen.begin(),
                                                            listen.end());
    if (!report.Has(kServers)) {
      loaded.config.mutable_topology()->mutable_servers(0)->set_address(
          listen[0]);
    }
  }
  return loaded;
}

std::string TrialTokenizerWarning(const v1::Config& config) {
  const bool has_text =
      std::any_of(config.sources().begin(), config.sources().end(),
                  [](const v1::Source& source) {
                    return source.format() != v1::Source::FORMAT_MOCK &&
                           source.format() != v1::Source::FORMAT_MEGATRON;
                  });
  if (config.model().tokenizer() != "bytes" || !has_text) return "";
  return "model.tokenizer is bytes, the default: each byte of text is a token, "
         "ids 0 to 255, which is for trials; to train a released model, name "
         "its tokenizer.json";
}

}  // namespace ballast
