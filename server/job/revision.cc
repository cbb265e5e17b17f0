#include "server/job/revision.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "proto/schedule/fingerprint.h"
#include "proto/schedule/split.h"
#include "server/config/topology.h"
#include "server/schedule/step_plan.h"
#include "server/settings/config_keys.h"

namespace ballast {
namespace {

using google::protobuf::util::MessageDifferencer;

// INVALID_ARGUMENT with the first key that differs.
absl::Status CheckSame(const google::protobuf::Message& running,
                       const google::protobuf::Message& offered,
                       absl::string_view prefix, absl::string_view why) {
  const std::optional<KeyDifference> difference =
      FirstDifference(running, offered);
  if (!difference.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(prefix, difference->key, " is ", difference->a,
                   " in the job and ", difference->b, " in the file; ", why));
}

constexpr absl::string_view kTakesRestart =
    "a running job cannot change it: restart all servers and ranks";

// `offered` with the limits on pixels, and the recipe, of `running`.
v1::Model WithLimits(v1::Model offered, const v1::Model& running) {
  offered.set_min_pixels(running.min_pixels());
  offered.set_max_pixels(running.max_pixels());
  offered.set_recipe(running.recipe());
  if (offered.has_image_family() && running.has_image_family()) {
    v1::ImageFamily* family = offered.mutable_image_family();
    family->set_min_pixels(running.image_family().min_pixels());
    family->set_max_pixels(running.image_family().max_pixels());
    family->set_longest_edge(running.image_family().longest_edge());
    family->set_min_tiles(running.image_family().min_tiles());
    family->set_max_tiles(running.image_family().max_tiles());
  }
  if (offered.has_video() && running.has_video()) {
    v1::Model::Video* video = offered.mutable_video();
    video->set_min_pixels(running.video().min_pixels());
    video->set_max_pixels(running.video().max_pixels());
    video->set_total_pixels(running.video().total_pixels());
  }
  return offered;
}

const v1::Source* FindSource(const v1::Config& config,
                             const std::string& name) {
  for (const v1::Source& source : config.sources()) {
    if (source.name() == name) return &source;
  }
  return nullptr;
}

absl::Status CheckRevisedSource(const v1::Source& running, v1::Source offered) {
  const bool trains = running.split() == v1::SPLIT_TRAIN;
  if (trains) {
    offered.set_weight(running.weight());
    offered.set_path(running.path());
    *offered.mutable_media_root() = running.media_root();
    offered.set_index(running.index());
    offered.set_recipe(running.recipe());
  }
  return CheckSame(
      running, offered, absl::StrCat("source ", running.name(), ": "),
      trains ? "give the altered source another name, or restart the job"
             : "valid and test stay as they are until the job is restarted");
}

using Weights = std::map<std::string, double>;

// The weights of train's sources at `step`, without the changes of that step if
// `before`.
Weights WeightsAt(const v1::Config& config, uint64_t step, bool before) {
  Weights weights;
  for (const uint32_t i : SourcesOfSplit(config, v1::SPLIT_TRAIN)) {
    weights[config.sources(i).name()] = config.sources(i).weight();
  }
  for (const auto& change : config.order().mixture_changes()) {
    if (change.step() > step || (before && change.step() == step)) break;
    for (const auto& [name, weight] : change.weights()) weights[name] = weight;
  }
  return weights;
}

absl::Status ComposeSources(const v1::Config& running,
                            const v1::Config& offered, v1::Config* composed) {
  composed->clear_sources();
  for (const v1::Source& source : running.sources()) {
    v1::Source* const next = composed->add_sources();
    *next = source;
    const v1::Source* const same = FindSource(offered, source.name());
    if (same != nullptr) {
      BALLAST_RETURN_IF_ERROR(CheckRevisedSource(source, *same));
      *next = *same;
      next->set_weight(source.weight());
    } else if (source.split() != v1::SPLIT_TRAIN) {
      return absl::InvalidArgumentError(absl::StrCat(
          "source ", source.name(), " of split ", SplitName(source.split()),
          " is not in the file; valid and test stay as they are until the job "
          "is restarted"));
    }
  }
  for (const v1::Source& source : offered.sources()) {
    if (FindSource(running, source.name()) != nullptr) continue;
    if (source.split() != v1::SPLIT_TRAIN) {
      return absl::InvalidArgumentError(absl::StrCat(
          "source ", source.name(), " of split ", SplitName(source.split()),
          " is not in the job; valid and test stay as they are until the job "
          "is restarted"));
    }
    v1::Source* const added = composed->add_sources();
    *added = source;
    added->set_weight(0);
  }
  return absl::OkStatus();
}

absl::Status ComposeOrder(const v1::Config& running, const v1::Config& offered,
                          uint64_t first_step, v1::Config* composed) {
  v1::Order rest = offered.order();
  *rest.mutable_mixture_changes() = running.order().mixture_changes();
  *rest.mutable_skips() = running.order().skips();
  BALLAST_RETURN_IF_ERROR(
      CheckSame(running.order(), rest, "order.", kTakesRestart));
  v1::Order& order = *composed->mutable_order();
  order = rest;

  order.clear_mixture_changes();
  for (const auto& change : running.order().mixture_changes()) {
    if (change.step() < first_step) *order.add_mixture_changes() = change;
  }
  const Weights before = WeightsAt(running, first_step, /*before=*/true);
  const Weights wanted = WeightsAt(offered, first_step, /*before=*/false);
  v1::Order::MixtureChange change;
  change.set_step(first_step);
  for (const v1::Source& source : composed->sources()) {
    if (source.split() != v1::SPLIT_TRAIN) continue;
    const auto was = before.find(source.name());
    const auto is = wanted.find(source.name());
    const double old_weight = was == before.end() ? 0 : was->second;
    const double new_weight = is == wanted.end() ? 0 : is->second;
    if (old_weight != new_weight) {
      (*change.mutable_weights())[source.name()] = new_weight;
    }
  }
  if (!change.weights().empty()) *order.add_mixture_changes() = change;
  for (const auto& later : offered.order().mixture_changes()) {
    if (later.step() > first_step) *order.add_mixture_changes() = later;
  }

  order.clear_skips();
  for (const v1::Order::Skip& skip : running.order().skips()) {
    if (skip.step() < first_step) *order.add_skips() = skip;
  }
  for (const v1::Order::Skip& skip : offered.order().skips()) {
    if (skip.step() >= first_step) {
      *order.add_skips() = skip;
      continue;
    }
    const bool known =
        std::any_of(order.skips().begin(), order.skips().end(),
                    [&](const v1::Order::Skip& each) {
                      return MessageDifferencer::Equals(each, skip);
                    });
    if (!known) {
      return absl::InvalidArgumentError(
          absl::StrCat("order.skips leaves out ", skip.steps(),
                       " steps at step ", skip.step(),
                       " in the file and not in the job, and the change begins "
                       "at step ",
                       first_step, "; wanted step ", first_step, " or later"));
    }
  }
  return absl::OkStatus();
}

// The sizes from `first_step` on, as changes.
std::vector<std::pair<uint64_t, uint32_t>> SizesFrom(
    const std::vector<BatchSize>& sizes, uint64_t first_step) {
  std::vector<std::pair<uint64_t, uint32_t>> from;
  from.emplace_back(first_step, SizeAt(sizes, first_step).samples);
  for (const BatchSize& size : sizes) {
    if (size.first_step <= first_step || size.samples == from.back().second) {
      continue;
    }
    from.emplace_back(size.first_step, size.samples);
  }
  return from;
}

absl::Status ComposeBatch(const v1::Batch& running, const v1::Batch& offered,
                          uint64_t first_step, v1::Batch* composed) {
  // All but sizes.
  v1::Batch rest = offered;
  rest.set_global(running.global());
  rest.set_micro(running.micro());
  rest.clear_rampup();
  if (running.has_rampup()) *rest.mutable_rampup() = running.rampup();
  *rest.mutable_changes() = running.changes();
  BALLAST_RETURN_IF_ERROR(CheckSame(running, rest, "batch.", kTakesRestart));
  *composed = rest;
  composed->set_micro(offered.micro());
  if (running.tokens() != 0 || running.packs() != 0) {
    rest = offered;
    rest.set_micro(running.micro());
    return CheckSame(running, rest, "batch.",
                     "steps of equal tokens or packs keep their sizes until "
                     "the job is restarted");
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<BatchSize> before,
                           BatchSizes(running));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<BatchSize> wanted,
                           BatchSizes(offered));
  const auto sizes = SizesFrom(wanted, first_step);
  if (sizes == SizesFrom(before, first_step)) return absl::OkStatus();
  // Keys that count samples of training would count the samples of a run that
  // had the offered sizes from its start.
  const bool counts_samples =
      offered.has_rampup() ||
      std::any_of(
          offered.changes().begin(), offered.changes().end(),
          [](const v1::Batch::Change& change) { return change.samples() > 0; });
  if (counts_samples && sizes.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch: the file sets sizes after step ", first_step,
        " by samples of training (batch.rampup, batch.changes[].samples); a "
        "change takes batch.changes[].step"));
  }
  // The steps of changes by samples, too, and no longer than the change.
  composed->clear_changes();
  for (const BatchSize& size : before) {
    if (!size.is_change || size.first_step >= first_step) continue;
    v1::Batch::Change* const change = composed->add_changes();
    change->set_step(size.first_step);
    change->set_global(size.samples);
  }
  uint32_t last = SizeAt(before, first_step - 1).samples;
  // A ramp-up that goes on past the step ends there.
  const bool ramps = SizesFrom(before, first_step).size() > 1;
  for (const auto& [step, samples] : sizes) {
    if (step == first_step && samples == last && !ramps) continue;
    v1::Batch::Change* const change = composed->add_changes();
    change->set_step(step);
    change->set_global(samples);
    last = samples;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::Config> ComposeRevision(const v1::Config& running,
                                           const v1::Config& offered,
                                           uint64_t first_step) {
  if (first_step == 0) {
    return absl::InvalidArgumentError(
        "a change at step 0 is another job; start it with the file");
  }
  v1::Config composed = running;
  v1::Topology topology = offered.topology();
  // The address of the only server is its serve.listen, unless it is written.
  if (topology.servers_size() == 1 && running.topology().servers_size() == 1) {
    topology.mutable_servers(0)->set_address(
        running.topology().servers(0).address());
  }
  BALLAST_RETURN_IF_ERROR(
      CheckSame(running.topology(), topology, "topology.", kTakesRestart));
  BALLAST_RETURN_IF_ERROR(CheckSame(
      running.model(), WithLimits(offered.model(), running.model()), "model.",
      "of the model only limits on pixels and the recipe can change in a "
      "running job"));
  *composed.mutable_model() = offered.model();
  BALLAST_RETURN_IF_ERROR(ComposeSources(running, offered, &composed));
  BALLAST_RETURN_IF_ERROR(
      ComposeOrder(running, offered, first_step, &composed));
  BALLAST_RETURN_IF_ERROR(ComposeBatch(running.batch(), offered.batch(),
                                       first_step, composed.mutable_batch()));
  if (!running.order().plan().empty() &&
      (!MessageDifferencer::Equals(running.order(), composed.order()) ||
       !MessageDifferencer::Equals(running.batch(), composed.batch()) ||
       running.sources_size() != composed.sources_size())) {
    return absl::InvalidArgumentError(
        "order.plan fixes the samples of every step; weights, sources, sizes "
        "and skips cannot change in a running job that has it");
  }
  *composed.mutable_balance() = offered.balance();
  *composed.mutable_packing() = offered.packing();
  const std::optional<uint64_t> altered = FirstAlteredStep(running, composed);
  if (altered.has_value() && *altered < first_step) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the change would alter step ", *altered, ", before its first step ",
        first_step,
        ": a skip before leaves out data of steps after; let the change begin "
        "after the steps that it leaves out"));
  }
  return composed;
}

namespace {

// What ranks lay out their batches by, and the end of the data.
v1::Job LaidOutBy(v1::Job job) {
  *job.mutable_model() = WithLimits(job.model(), v1::Model());
  job.clear_global_batch();
  job.clear_micro_batch();
  job.clear_counts_in_schedules();
  job.clear_steps_per_epoch();
  job.clear_step_ranges();
  return job;
}

// Samples of the steps before, by source.
std::map<std::string, uint64_t> TrainedBefore(
    const v1::GetMixtureResponse& mixture) {
  std::map<std::string, uint64_t> trained;
  for (const auto& source : mixture.sources()) {
    if (source.samples() > 0) trained[source.name()] = source.samples();
  }
  return trained;
}

// The positions of the steps before `step`, as few ranges as they take.
std::vector<std::pair<uint64_t, uint64_t>> Ranges(const v1::Job& job,
                                                  uint64_t step) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const PositionRange& range : PositionsBefore(job, step)) {
    if (!ranges.empty() && ranges.back().second == range.first) {
      ranges.back().second = range.end;
    } else {
      ranges.emplace_back(range.first, range.end);
    }
  }
  return ranges;
}

}  // namespace

absl::Status CheckRevision(const Scheduler& running, const Scheduler& next,
                           uint64_t first_step) {
  const v1::Job before = LaidOutBy(running.job());
  const v1::Job after = LaidOutBy(next.job());
  if (before.end_step() != after.end_step()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data would end before step ", after.end_step(),
                     " and not before step ", before.end_step(),
                     " (order.epochs), as ranks know from their start; set "
                     "order.epochs to 0 at "
                     "the next start of the job"));
  }
  std::string difference;
  MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  if (!differencer.Compare(before, after)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranks lay out their batches by what the file changes, so "
                     "they must be restarted: ",
                     difference));
  }
  if (running.fingerprint().hash() == next.fingerprint().hash()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the file changes nothing that a schedule depends on, from step ",
        first_step, " on"));
  }
  BALLAST_ASSIGN_OR_RETURN(const v1::GetMixtureResponse left,
                           running.MixtureBefore(first_step));
  BALLAST_ASSIGN_OR_RETURN(const v1::GetMixtureResponse right,
                           next.MixtureBefore(first_step));
  if (TrainedBefore(left) != TrainedBefore(right) ||
      Ranges(running.job(), first_step) != Ranges(next.job(), first_step)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the steps before step ", first_step,
        " would draw other samples than they did, as with batch.tokens or "
        "batch.packs, whose steps follow from the lengths of all samples "
        "before, where the file gives sources other lengths. Of another job, "
        "please report this with both configurations"));
  }
  return absl::OkStatus();
}

std::vector<std::string> ListDifferences(const v1::Fingerprint& before,
                                         const v1::Fingerprint& after) {
  std::map<std::string, std::pair<std::string, std::string>> entries;
  for (const auto& entry : before.entries()) {
    entries[entry.key()].first = entry.value();
  }
  for (const auto& entry : after.entries()) {
    entries[entry.key()].second = entry.value();
  }
  std::vector<std::string> differences;
  for (const auto& [key, values] : entries) {
    const auto& [was, is] = values;
    if (was == is) continue;
    const std::optional<uint64_t> step = StepOfKey(key);
    const std::string name =
        step.has_value()
            ? absl::StrCat(key.substr(FromStepKey(*step, "").size()),
                           " from step ", *step)
            : key;
    differences.push_back(absl::StrCat(name, ": ", was.empty() ? "absent" : was,
                                       " -> ", is.empty() ? "absent" : is));
  }
  return differences;
}

std::vector<std::string> ListUntaken(const v1::Config& running,
                                     const v1::Config& offered) {
  std::vector<std::string> untaken;
  const auto add = [&](absl::string_view section,
                       const google::protobuf::Message& here,
                       const google::protobuf::Message& there) {
    const std::optional<KeyDifference> difference =
        FirstDifference(here, there);
    if (!difference.has_value()) return;
    untaken.push_back(absl::StrCat(section, difference->key, " stays ",
                                   difference->a, " here (the file has ",
                                   difference->b, ")"));
  };
  add("serve.", running.serve(), offered.serve());
  add("storage.", running.storage(), offered.storage());
  if (running.has_security() || offered.has_security()) {
    add("security.", running.security(), offered.security());
  }
  // Its serve.listen, unless it is written (ComposeRevision).
  if (running.topology().servers_size() == 1 &&
      offered.topology().servers_size() == 1) {
    add("topology.servers[0].", running.topology().servers(0),
        offered.topology().servers(0));
  }
  return untaken;
}

namespace {

// `running` with the keys that a running server can adopt from `wanted`.
v1::Config Adopted(const v1::Config& running, const v1::Config& wanted) {
  v1::Config config = running;
  AdoptReloadable(wanted, &config);
  // A restart is needed to require tokens at all, or to stop requiring them.
  if (running.has_security() && (running.security().tokens_file().empty() ||
                                 wanted.security().tokens_file().empty())) {
    *config.mutable_security() = running.security();
  }
  return config;
}

// Returns whether `key` gives steps of train another mixture, other data or
// another size.
bool IsOfSteps(const std::string& key) {
  return absl::StartsWith(key, "order.mixture_changes") ||
         absl::StartsWith(key, "order.skips") ||
         absl::StartsWith(key, "batch.rampup") ||
         absl::StartsWith(key, "batch.changes");
}

// What a change of a key that the schedule depends on requires.
std::string RestartOfAll(const std::string& key, const v1::Config& running,
                         const v1::Config& wanted) {
  const std::optional<uint64_t> step =
      IsOfSteps(key) ? FirstAlteredStep(running, wanted) : std::nullopt;
  return step.has_value()
             ? absl::StrCat("that would change the schedule from step ", *step,
                            " on, which every server and rank must agree on: "
                            "restart them all, from a checkpoint at step ",
                            *step, " or before")
             : "that would change the schedule, which every server and rank "
               "must agree on: restart them all";
}

}  // namespace

absl::Status CheckReload(const v1::Config& running, const v1::Config& wanted) {
  const std::optional<KeyDifference> difference =
      FirstDifference(Adopted(running, wanted), wanted);
  if (!difference.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(difference->key, " is ", difference->a,
                   " in this server and ", difference->b, " in the file; ",
                   difference->change != v1::Setting::JOB
                       ? std::string("that takes a restart of this server")
                       : RestartOfAll(difference->key, running, wanted)));
}

}  // namespace ballast
