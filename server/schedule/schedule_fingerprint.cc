#include "server/schedule/schedule_fingerprint.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "proto/image/job_images.h"
#include "proto/schedule/fingerprint.h"
#include "proto/schedule/module.h"
#include "server/config/topology.h"
#include "server/model/model_rows.h"
#include "server/model/model_videos.h"
#include "server/model/profiles.h"
#include "server/schedule/filled_steps.h"
#include "server/schedule/sample_order.h"
#include "server/schedule/step_plan.h"
#include "server/settings/config_keys.h"
#include "server/settings/source_fields.h"

namespace ballast {

namespace {

absl::Status NotCarried(absl::string_view setting, absl::string_view wanted) {
  return absl::UnimplementedError(absl::StrCat(
      "a source has videos, which ", setting, " does not carry; wanted ",
      wanted, ", or sources without videos"));
}

}  // namespace

MediaCounts CountMedia(const std::vector<const SourceIndex*>& indexes) {
  MediaCounts all;
  for (const SourceIndex* index : indexes) {
    const MediaCounts more = index->media_counts();
    for (const MediumKind kind : MediumKinds()) all[kind] += more[kind];
  }
  return all;
}

bool HaveVideos(const std::vector<const SourceIndex*>& indexes) {
  return CountMedia(indexes)[MediumKind::kVideo] != 0;
}

absl::Status ResolveVideos(const std::vector<const SourceIndex*>& indexes,
                           v1::Config* config) {
  v1::Model& model = *config->mutable_model();
  if (!HaveVideos(indexes)) {
    model.clear_video();
    return absl::OkStatus();
  }
  const std::string profile = absl::StrCat(
      "model.profile ", model.profile().empty() ? "''" : model.profile());
  const std::optional<VideoModel> rule = GetVideoModel(model);
  if (!rule.has_value()) {
    return NotCarried(
        profile,
        absl::StrCat("one of ", absl::StrJoin(VideoModelNames(), ", ")));
  }
  if (model.decode() == v1::Model::DECODE_DEVICE) {
    return NotCarried("model.decode: device", "model.decode: host");
  }
  // An EmbeddingPlan counts rows by merged patches.
  if (config->balance().placement() == v1::Balance::PLACEMENT_SPLIT &&
      rule->rule != VideoRule::kQwen2 && rule->rule != VideoRule::kQwen3) {
    return NotCarried(absl::StrCat("balance.placement: split with ", profile),
                      "balance.placement: paired");
  }
  // A pack's ranks find their rows in the order of its text, not of its media.
  if (DynamicCp(*config) > 1) {
    return NotCarried("packing.dynamic_cp", "packing.dynamic_cp: 1");
  }
  v1::Model::Video& video = *model.mutable_video();
  if (video.sampling() == v1::Model::Video::SAMPLING_UNSPECIFIED) {
    video.set_sampling(v1::Model::Video::SAMPLING_QWEN_VL_UTILS);
  }
  return absl::OkStatus();
}

bool HaveRows(const std::vector<const SourceIndex*>& indexes) {
  const MediaCounts counts = CountMedia(indexes);
  const auto kinds = MediumKinds();
  return std::any_of(kinds.begin(), kinds.end(), [&](MediumKind kind) {
    return TravelsAsRows(kind) && counts[kind] != 0;
  });
}

absl::Status CheckRowsTaken(const std::vector<const SourceIndex*>& indexes,
                            const v1::Config& config) {
  const MediaCounts counts = CountMedia(indexes);
  const RowsRule* rows = GetRowsRule(config.model());
  for (const MediumKind kind : MediumKinds()) {
    const bool is_taken = rows != nullptr && rows->kind() == kind;
    if (!TravelsAsRows(kind) || is_taken || counts[kind] == 0) continue;
    return absl::UnimplementedError(absl::StrCat(
        "a source has ", MediumName(kind), ", which model.profile ",
        config.model().profile().empty() ? "''" : config.model().profile(),
        " does not take; wanted ",
        kind == MediumKind::kAudio
            ? absl::StrCat("one of ", absl::StrJoin(AudioFamilyNames(), ", "))
            : absl::StrCat("a file with a section medium of kind ",
                           MediumName(kind)),
        ", or sources without ", MediumName(kind)));
  }
  return absl::OkStatus();
}

absl::Status CheckMediaModules(const std::vector<const SourceIndex*>& indexes,
                               const v1::Config& config) {
  const MediaCounts media = CountMedia(indexes);
  // By module: images and videos share one, and each other kind has the module
  // of its name.
  std::vector<std::pair<absl::string_view, MediaCounts>> taken = {
      {"vision", {}}};
  for (const MediumKind kind : MediumKinds()) {
    if (TravelsAsRows(kind)) taken.push_back({MediumName(kind), {}});
    taken.back().second[kind] = media[kind];
  }
  for (const auto& [name, counts] : taken) {
    const std::optional<v1::Module> module = ParseModule(name);
    if (Total(counts) == 0 || !module.has_value() ||
        DpSize(config, *module) != 0) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "the sources have ", Describe(counts),
        ", and topology.modules has no module ", name,
        " that takes them: the language model would be trained on placeholders "
        "without their content; write `",
        name, ": {dp: N}` under topology.modules, or leave such samples out"));
  }
  return absl::OkStatus();
}

namespace {

// Whether the positions of text after a video differ from those of rules 1.
bool IsPlacedAnew(const v1::Model& model) {
  const v1::ModelProfile* profile = GetProfile(model);
  return model.position_axes() == 3 && profile != nullptr &&
         GetVideoRule(model) == v1::Videos::RULE_QWEN2 &&
         profile->audio().in_video().ids_per_second() == 0 &&
         !profile->videos().text_after_sides();
}

using KeyValues = std::map<std::string, std::string>;
// Version of the rules that turn configuration and index into a schedule. Must
// be raised whenever any schedule changes, so that servers of different
// versions refuse each other instead of sending ranks to different samples.
//   2: vision's quadratic cost is summed over images; placement counts the
//      bytes of payloads as blocks hold them with decode: host
constexpr int kScheduleRules = 2;
// 2: vision's search finds takers by the costs of samples
constexpr int kSplitRules = 2;
// The rules by which packs that ranks share are made (context_packs.h).
constexpr int kDynamicRules = 1;
// The rule by which mixtures round weights that do not fit their table, where a
// source is not drawn.
//   2: such a source has no effect on the others
constexpr int kMixtureRules = 2;
// The rule of changes of the mixture with batch.tokens or batch.packs.
//   2: the data of skipped steps after the change have its weights
//   3: the step before it ends as without the change
constexpr int kFillRules = 3;
// The last version of the rules of texts that fingerprints leave out.
constexpr int kUntoldTextVersion = 3;

// How rows of Parquet are shuffled; "" for other sources.
std::string GroupsText(const v1::Source& source) {
  if (source.shuffle_groups() == 0) return "";
  return absl::StrCat(" shuffle_groups ", source.shuffle_groups());
}

// Adds the changes of train by step, each under the first step that it alters.
// A source that step 0 does not draw counts from the first change on that draws
// it.
void AddChanges(const v1::Config& config,
                const std::vector<const SourceIndex*>& indexes,
                const std::vector<BatchSize>& sizes, KeyValues* entries) {
  const v1::Order& order = config.order();
  for (const BatchSize& size : sizes) {
    if (!size.is_change) continue;
    (*entries)[FromStepKey(AltersFrom(order, size.first_step),
                           absl::StrCat("batch.changes.", size.first_step))] =
        absl::StrCat("global ", size.samples);
  }
  for (const v1::Order::Skip& skip : order.skips()) {
    (*entries)[FromStepKey(skip.step(), "order.skips")] =
        absl::StrCat(skip.steps(), " steps");
  }
  const std::vector<uint32_t> sources = SourcesOfSplit(config, v1::SPLIT_TRAIN);
  std::map<uint32_t, double> weights;
  for (const uint32_t i : sources) weights[i] = config.sources(i).weight();
  std::set<uint32_t> drawn;
  for (const uint32_t i : sources) {
    if (weights[i] > 0) drawn.insert(i);
  }
  for (const auto& change : order.mixture_changes()) {
    const uint64_t from = AltersFrom(order, change.step());
    std::string text;
    for (const uint32_t i : sources) {
      const v1::Source& source = config.sources(i);
      const auto given = change.weights().find(source.name());
      if (given != change.weights().end()) weights[i] = given->second;
      if (weights[i] == 0) continue;
      absl::StrAppend(&text, text.empty() ? "" : ", ", source.name(),
                      " weight ", FingerprintNumber(weights[i]),
                      GroupsText(source));
      if (!drawn.insert(i).second) continue;
      (*entries)[FromStepKey(from, absl::StrCat("index.", source.name()))] =
          indexes[i]->digest();
    }
    (*entries)[FromStepKey(
        from, absl::StrCat("order.mixture_changes.", change.step()))] = text;
    if (AreFilled(config)) {
      (*entries)[FromStepKey(from, "order.fill_rules")] =
          absl::StrCat(kFillRules);
    }
  }
  // A source counts from the step on that first draws it: a configuration that
  // lacks it has the same mixtures before.
  const std::vector<WeightsFrom> mixtures = GetWeights(config);
  for (const WeightsFrom& at : mixtures) {
    const uint64_t table =
        at.step == 0 ? Mixture::kMaxPattern : Mixture::kMaxPatternOfChange;
    if (Mixture::IsExact(at.weights, table)) continue;
    const auto known = std::find_if(
        mixtures.begin(), mixtures.end(), [&](const WeightsFrom& other) {
          for (size_t s = 0; s < sources.size(); ++s) {
            if (at.weights[s] == 0 && other.weights[s] > 0) return true;
          }
          return false;
        });
    if (known == mixtures.end()) continue;
    (*entries)[FromStepKey(AltersFrom(order, std::max(at.step, known->step)),
                           "order.mixture_rules")] =
        absl::StrCat(kMixtureRules);
  }
}

}  // namespace

v1::Fingerprint ScheduleFingerprint(
    const v1::Config& config, const std::vector<const SourceIndex*>& indexes,
    v1::Split split, const std::vector<BatchSize>& sizes, const PlanRows* plan,
    const ReleaseRules& rules) {
  KeyValues entries;
  for (const v1::Split each : GetSplits(config)) {
    if (const v1::Batch::Sizes* own = OwnSizes(config.batch(), each)) {
      entries[SplitPrefix(each) + "batch.global"] = absl::StrCat(own->global());
      entries[SplitPrefix(each) + "batch.micro"] = absl::StrCat(own->micro());
    }
    // Counted within the split, so that sources of other splits may be
    // anywhere.
    int number = 0;
    for (const uint32_t i : SourcesOfSplit(config, each)) {
      const v1::Source& source = config.sources(i);
      if (source.weight() == 0) continue;  // AddChanges
      const std::string prefix = SplitPrefix(each);
      entries[absl::StrFormat("%ssources.%04d", prefix, number++)] =
          absl::StrCat(source.name(), " weight ",
                       FingerprintNumber(source.weight()), GroupsText(source));
      entries[absl::StrCat(prefix, "index.", source.name())] =
          indexes[i]->digest();
    }
  }
  // First the entries of the keys' options, then the entries that follow from
  // several keys.
  AddFingerprint(config, &entries);
  AddFieldEntries(config, &entries);
  // Batches that list no crops have the one form of the first releases, whose
  // fingerprints did not contain it.
  if (!ListsCrops(config.model())) entries.erase("model.image_form");
  // Versions that knew no rules had those of transformers.
  for (const char* key : {"model.profile", "model.chat_template"}) {
    const auto entry = entries.find(key);
    if (entry == entries.end()) continue;
    if (FollowsAuthors(entry->second)) entries["model.rules"] = "authors";
    entry->second = std::string(WithoutRules(entry->second));
  }
  if (!HaveVideos(indexes)) {
    for (auto it = entries.lower_bound("model.video.");
         it != entries.end() && absl::StartsWith(it->first, "model.video.");) {
      it = entries.erase(it);
    }
  }
  if (HaveRows(indexes)) {
    for (auto& [key, value] : GetRowsRule(config.model())->fingerprint()) {
      entries[absl::StrCat("model.", key)] = std::move(value);
    }
  }
  // Where images are decoded changes neither the data nor the batches, only
  // what blocks hold: a checkpoint made with one resumes with the other.
  if (config.model().decode() == v1::Model::DECODE_DEVICE) {
    entries["delivery.decode"] = "device";
    if (config.model().has_device_share() &&
        config.model().device_share() != 1) {
      entries["delivery.device_share"] =
          FingerprintNumber(config.model().device_share());
    }
  }
  // Servers compare the files of images that have been checked, and must agree
  // on which.
  for (int i = 0; i < config.sources_size(); ++i) {
    const std::string digest = indexes[i]->encoded_digest();
    if (digest.empty()) continue;
    entries[absl::StrCat("delivery.encoded.", config.sources(i).name())] =
        digest;
  }
  // Servers must make the same samples of a record. A checkpoint resumes with
  // another recipe or Python where the samples, whose hashes the index's digest
  // covers, are equal.
  for (const v1::Source& source : config.sources()) {
    if (source.recipe().empty()) continue;
    entries[absl::StrCat("delivery.recipe.", source.name())] = source.recipe();
  }
  // Servers must make the same tokens of a text. A checkpoint resumes under
  // other rules where the lengths, which the index's digest covers, are equal:
  // new rules mostly concern other settings.
  if (rules.text > kUntoldTextVersion) {
    entries["delivery.text_rules"] = absl::StrCat(rules.text);
  }
  // Servers must decode the same pixels and samples, and FFmpeg's releases
  // differ in how they round. A checkpoint resumes with another.
  if (!rules.ffmpeg.empty() && (HaveVideos(indexes) || HaveRows(indexes))) {
    entries["delivery.ffmpeg"] = rules.ffmpeg;
  }
  // Servers must place the same positions: before, text after a video of
  // Qwen2-VL's rule continued after its rows and columns. A checkpoint resumes
  // under the other rule.
  if (rules.positions > 1 && HaveVideos(indexes) &&
      IsPlacedAnew(config.model())) {
    entries["delivery.position_rules"] = absl::StrCat(rules.positions);
  }
  // Servers must make the same pixels of a frame: before, the last columns of
  // some widths were black. A checkpoint resumes with another.
  if (rules.frames > 1 && HaveVideos(indexes)) {
    entries["delivery.frame_rules"] = absl::StrCat(rules.frames);
  }
  // As FFmpeg's releases: a job has servers of one kind of processor, and
  // resumes on another.
  if (!rules.processor.empty()) {
    entries["delivery.processor"] = rules.processor;
  }
  AddChanges(config, indexes, sizes, &entries);
  if (plan != nullptr) {
    entries[FromStepKey(plan->first_step(), "order.plan")] = plan->digest();
  }
  // The steps of so many tokens or packs also depend on what they are made of.
  // Then batch.global is not the file's (config_loader.cc).
  const v1::Batch& batch = config.batch();
  if (batch.tokens() > 0 || batch.packs() > 0) entries.erase("batch.global");
  if (batch.tokens() > 0) {
    entries["batch.samples_together"] = absl::StrCat(StepUnit(config));
  }
  if (batch.packs() > 0) {
    entries["batch.pack_align"] =
        absl::StrCat(PackAlign(config, v1::MODULE_LANGUAGE));
  }
  if (const double slack = EncoderSlack(config); slack > 0) {
    entries["packing.encoder_slack"] = FingerprintNumber(slack);
  }
  if (const uint32_t ranks = DynamicCp(config); ranks > 1) {
    entries["packing.dynamic_cp"] = absl::StrCat(ranks);
    entries["packing.dynamic_rules"] = absl::StrCat(kDynamicRules);
  }
  if (config.balance().placement() == v1::Balance::PLACEMENT_SPLIT) {
    entries["balance.split_rules"] = absl::StrCat(kSplitRules);
  }
  entries["balance.rules"] = absl::StrCat(kScheduleRules);
  for (int i = 0; i < config.topology().servers_size(); ++i) {
    for (const auto& [module, ranks] : config.topology().servers(i).ranks()) {
      entries[absl::StrFormat("topology.servers.%04d.%s", i, module)] = ranks;
    }
  }
  // The schedule depends only on whether samples move, not on how they do.
  entries["balance.reorder"] =
      config.balance().delivery() == v1::DELIVERY_OFF ? "false" : "true";
  // Servers must agree on what a sample with a data fault becomes. The default
  // leaves older fingerprints as they are.
  if (config.serve().on_bad_sample() == v1::Serve::ON_BAD_SAMPLE_ERROR) {
    entries["serve.on_bad_sample"] = "error";
  }
  // A job that can change while it runs is another one than a job that cannot:
  // a server without the key knows no change, so neither the other servers nor
  // any rank take a step from it
  // (docs/decisions/0088-revisions-in-the-fingerprint.md).
  if (!config.serve().revisions().empty()) {
    entries["serve.revisions"] = "kept";
  }
  return MakeFingerprint(entries, split);
}

}  // namespace ballast
