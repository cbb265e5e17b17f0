#include "server/schedule/step_plan.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"
#include "proto/schedule/split.h"
#include "server/config/topology.h"
#include "server/schedule/group_order.h"
#include "server/settings/config_keys.h"

namespace ballast {

std::vector<v1::Split> GetSplits(const v1::Config& config) {
  std::vector<v1::Split> splits;
  for (const v1::Split split :
       {v1::SPLIT_TRAIN, v1::SPLIT_VALID, v1::SPLIT_TEST}) {
    if (!SourcesOfSplit(config, split).empty()) splits.push_back(split);
  }
  return splits;
}

std::vector<uint32_t> SourcesOfSplit(const v1::Config& config,
                                     v1::Split split) {
  std::vector<uint32_t> numbers;
  for (int i = 0; i < config.sources_size(); ++i) {
    if (config.sources(i).split() == split) numbers.push_back(i);
  }
  return numbers;
}

const v1::Batch::Sizes* OwnSizes(const v1::Batch& batch, v1::Split split) {
  if (split == v1::SPLIT_VALID && batch.has_valid()) return &batch.valid();
  if (split == v1::SPLIT_TEST && batch.has_test()) return &batch.test();
  return nullptr;
}

v1::Config ConfigOfSplit(v1::Config config, v1::Split split) {
  v1::Batch& batch = *config.mutable_batch();
  if (const v1::Batch::Sizes* sizes = OwnSizes(batch, split)) {
    batch.set_global(sizes->global());
    batch.set_micro(sizes->micro());
  }
  return config;
}

uint64_t SeedOfSplit(uint64_t seed, v1::Split split) {
  if (split == v1::SPLIT_TRAIN) return seed;
  // Mix64 is a bijection, and seeds of different splits differ in a byte that
  // only huge seeds use.
  return Mix64(seed ^ (static_cast<uint64_t>(split) << 56));
}

uint64_t StepPositions::GetNumber(uint64_t step) const {
  uint64_t number = step - first_step_;
  for (const Skip& skip : skips_) {
    if (skip.step <= step) number += skip.steps;
  }
  return number;
}

absl::StatusOr<uint64_t> StepPositions::First(uint64_t step) const {
  if (!HasStarts(step)) return FirstPosition(job_, step);
  return starts_->Start(GetNumber(step));
}

absl::StatusOr<PositionRange> StepPositions::Of(uint64_t step) const {
  PositionRange range;
  if (!HasStarts(step)) {
    BALLAST_ASSIGN_OR_RETURN(range.first, FirstPosition(job_, step));
    range.end = range.first + SamplesOfStep(job_, step);
    return range;
  }
  const uint64_t number = GetNumber(step);
  BALLAST_ASSIGN_OR_RETURN(range.end, starts_->Start(number + 1));
  BALLAST_ASSIGN_OR_RETURN(range.first, starts_->Start(number));
  return range;
}

absl::StatusOr<std::optional<uint64_t>> StepPositions::CountStarts(
    uint64_t position) const {
  if (starts_ == nullptr) return std::nullopt;
  BALLAST_ASSIGN_OR_RETURN(const uint64_t first, starts_->Start(0));
  if (position < first) return std::nullopt;
  return starts_->CountEnded(position);
}

absl::StatusOr<std::optional<uint64_t>> StepPositions::Find(
    uint64_t position) const {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<uint64_t> number,
                           CountStarts(position));
  if (!number.has_value()) return StepOfPosition(job_, position);
  uint64_t left_out = 0;
  for (const Skip& skip : skips_) {
    const uint64_t begin = skip.step - first_step_ + left_out;
    if (*number < begin) break;
    if (*number < begin + skip.steps) return std::optional<uint64_t>();
    left_out += skip.steps;
  }
  return std::make_optional(first_step_ + *number - left_out);
}

absl::StatusOr<uint64_t> StepPositions::CountEnded(uint64_t position) const {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<uint64_t> number,
                           CountStarts(position));
  if (!number.has_value()) return StepsBefore(job_, position);
  uint64_t left_out = 0;
  for (const Skip& skip : skips_) {
    const uint64_t begin = skip.step - first_step_ + left_out;
    if (*number <= begin) break;
    left_out += std::min(*number - begin, skip.steps);
  }
  return first_step_ + *number - left_out;
}

absl::StatusOr<std::vector<PositionRange>> StepPositions::Before(
    uint64_t step) const {
  std::vector<PositionRange> ranges =
      PositionsBefore(job_, HasStarts(step) ? first_step_ : step);
  if (!HasStarts(step)) return ranges;
  uint64_t begin = first_step_;  // of the steps between two skips
  const auto add = [&](uint64_t end) -> absl::Status {
    if (begin >= end) return absl::OkStatus();
    BALLAST_ASSIGN_OR_RETURN(const uint64_t first, First(begin));
    BALLAST_ASSIGN_OR_RETURN(const uint64_t last,
                             starts_->Start(GetNumber(end - 1) + 1));
    ranges.push_back({first, last});
    begin = end;
    return absl::OkStatus();
  };
  for (const Skip& skip : skips_) {
    if (skip.step < step) BALLAST_RETURN_IF_ERROR(add(skip.step));
  }
  BALLAST_RETURN_IF_ERROR(add(step));
  return ranges;
}

namespace {

// The largest and the mean load of each micro-batch, summed over a step.
struct Spread {
  double largest = 0;
  double mean = 0;

  template <typename Loads>
  void Add(const Loads& loads) {
    if (loads.empty()) return;
    largest += *std::max_element(loads.begin(), loads.end());
    mean += std::accumulate(loads.begin(), loads.end(), 0.0) / loads.size();
  }
  double ratio() const { return mean > 0 ? largest / mean : 0; }
};

template <typename Loads>
void AddColumns(const Loads& loads, Loads* sums) {
  for (int r = 0; r < std::min(loads.size(), sums->size()); ++r) {
    *sums->Mutable(r) += loads.Get(r);
  }
}

void CountMoves(const v1::MicroBatchSchedule& columns,
                const v1::ModuleSchedule& schedule, const ServerOfRank& servers,
                const BlockGeometry& geometry, v1::ModuleBalance* balance) {
  const std::vector<uint64_t> bytes =
      PayloadBytes(columns, GetMedia(schedule.module()), geometry);
  const auto ranks = static_cast<uint32_t>(balance->samples_out_size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    balance->set_samples(balance->samples() + 1);
    balance->set_bytes(balance->bytes() + bytes[i]);
    const uint32_t from = schedule.reader(i);
    for (uint32_t k = 0; k < PackRanks(schedule, i); ++k) {
      const uint32_t to = schedule.owner(i) + k;
      if (from == to || from >= ranks || to >= ranks) continue;
      v1::Moved* moved = ShareServer(servers, from, to)
                             ? balance->mutable_within_servers()
                             : balance->mutable_between_servers();
      moved->set_samples(moved->samples() + 1);
      moved->set_bytes(moved->bytes() + bytes[i]);
      ++*balance->mutable_samples_out()->Mutable(from);
      ++*balance->mutable_samples_in()->Mutable(to);
      *balance->mutable_bytes_out()->Mutable(from) += bytes[i];
      *balance->mutable_bytes_in()->Mutable(to) += bytes[i];
    }
  }
}

}  // namespace

absl::StatusOr<ServersOfRanks> FindServersOfRanks(const v1::Config& config) {
  ServersOfRanks found;
  for (const v1::Module module : Modules(config)) {
    BALLAST_ASSIGN_OR_RETURN(found[module], FindServerOfRank(config, module));
  }
  return found;
}

v1::StepBalance GetBalance(const v1::StepSchedule& schedule,
                           const ServersOfRanks& servers,
                           const BlockGeometry& geometry) {
  const ServerOfRank kOneServer;
  v1::StepBalance balance;
  balance.set_step(schedule.step());
  balance.set_micro_batches(schedule.micro_batches_size());
  *balance.mutable_totals() = schedule.totals();
  if (schedule.micro_batches().empty()) return balance;
  for (const v1::ModuleSchedule& first : schedule.micro_batches(0).modules()) {
    v1::ModuleBalance* of = balance.add_modules();
    of->set_module(first.module());
    const int ranks = first.load_after_size();
    of->mutable_load_before()->Resize(ranks, 0);
    of->mutable_load_after()->Resize(ranks, 0);
    for (auto* column : {of->mutable_samples_out(), of->mutable_samples_in(),
                         of->mutable_bytes_out(), of->mutable_bytes_in()}) {
      column->Resize(ranks, 0);
    }
    const auto known = servers.find(first.module());
    const ServerOfRank& server_of_rank =
        known == servers.end() ? kOneServer : known->second;
    Spread before;
    Spread after;
    for (const v1::MicroBatchSchedule& columns : schedule.micro_batches()) {
      const v1::ModuleSchedule* module = FindModule(columns, first.module());
      if (module == nullptr) continue;
      before.Add(module->load_before());
      after.Add(module->load_after());
      AddColumns(module->load_before(), of->mutable_load_before());
      AddColumns(module->load_after(), of->mutable_load_after());
      CountMoves(columns, *module, server_of_rank, geometry, of);
    }
    of->set_spread_before(before.ratio());
    of->set_spread_after(after.ratio());
  }
  Spread before;
  Spread after;
  for (const v1::MicroBatchSchedule& columns : schedule.micro_batches()) {
    before.Add(SumOfModules(columns, &v1::ModuleSchedule::load_before));
    after.Add(SumOfModules(columns, &v1::ModuleSchedule::load_after));
  }
  balance.set_spread_before(before.ratio());
  balance.set_spread_after(after.ratio());
  return balance;
}

void DropRanks(v1::StepBalance* balance) {
  for (v1::ModuleBalance& module : *balance->mutable_modules()) {
    module.clear_load_before();
    module.clear_load_after();
    module.clear_samples_out();
    module.clear_samples_in();
    module.clear_bytes_out();
    module.clear_bytes_in();
  }
}

std::vector<WeightsFrom> GetWeights(const v1::Config& config) {
  const std::vector<uint32_t> sources = SourcesOfSplit(config, v1::SPLIT_TRAIN);
  WeightsFrom now;
  for (const uint32_t i : sources) {
    now.weights.push_back(config.sources(i).weight());
  }
  std::vector<WeightsFrom> all = {now};
  for (const auto& change : config.order().mixture_changes()) {
    now.step = change.step();
    for (size_t s = 0; s < sources.size(); ++s) {
      const auto given =
          change.weights().find(config.sources(sources[s]).name());
      if (given != change.weights().end()) now.weights[s] = given->second;
    }
    all.push_back(now);
  }
  return all;
}

namespace {

// Walks through the steps of train in ascending order.
class Planner {
 public:
  Planner(std::vector<BatchSize> sizes, std::vector<WeightsFrom> weights)
      : sizes_(std::move(sizes)), weights_(std::move(weights)) {
    last_ = weights_[0].weights;
  }

  // The steps from `step` on have another size or another mixture.
  void Change(uint64_t step) {
    AddRange(step);
    SetWeights(GetPosition(step), WeightsAt(step));
  }

  // Leaves out the data of `count` steps before `step`, with the changes among
  // them.
  void Skip(uint64_t step, uint64_t count) {
    Change(step);
    const uint64_t end = step + count;
    for (const WeightsFrom& each : weights_) {
      if (each.step <= step || each.step >= end) continue;
      SetWeights(GetPosition(each.step), each.weights);
    }
    skipped_ += SamplesBefore(sizes_, end) - SamplesBefore(sizes_, step);
    Change(step);
  }

  StepPlan Take() && { return std::move(plan_); }

 private:
  // The first position of a step, without later skips.
  uint64_t GetPosition(uint64_t step) const {
    return SamplesBefore(sizes_, step) + skipped_;
  }

  const std::vector<double>& WeightsAt(uint64_t step) const {
    const auto after =
        std::upper_bound(weights_.begin(), weights_.end(), step,
                         [](uint64_t wanted, const WeightsFrom& each) {
                           return wanted < each.step;
                         });
    return std::prev(after)->weights;
  }

  void AddRange(uint64_t step) {
    v1::StepRange range;
    range.set_first_step(step);
    range.set_first_position(GetPosition(step));
    range.set_samples(SizeAt(sizes_, step).samples);
    std::vector<v1::StepRange>& steps = plan_.steps;
    if (!steps.empty() && steps.back().first_step() == step) steps.pop_back();
    if (!steps.empty()) {
      const v1::StepRange& last = steps.back();
      const bool goes_on =
          last.samples() == range.samples() &&
          last.first_position() + (step - last.first_step()) * last.samples() ==
              range.first_position();
      if (goes_on) return;
    }
    steps.push_back(std::move(range));
  }

  void SetWeights(uint64_t position, const std::vector<double>& weights) {
    if (weights == last_) return;
    last_ = weights;
    plan_.mixtures.push_back({position, weights});
  }

  const std::vector<BatchSize> sizes_;
  const std::vector<WeightsFrom> weights_;
  StepPlan plan_;
  uint64_t skipped_ = 0;
  std::vector<double> last_;
};

// The changes of a configuration with the first step that each alters.
std::set<std::pair<uint64_t, std::string>> GetChanges(
    const v1::Config& config) {
  const v1::Order& order = config.order();
  std::set<std::pair<uint64_t, std::string>> changes;
  if (config.batch().has_rampup()) {
    changes.insert({0, config.batch().rampup().ShortDebugString()});
  }
  for (const BatchSize& size :
       BatchSizes(config.batch()).value_or(std::vector<BatchSize>())) {
    if (!size.is_change) continue;
    changes.insert({AltersFrom(order, size.first_step),
                    absl::StrCat("size ", size.first_step, " ", size.samples)});
  }
  for (const v1::Order::Skip& skip : order.skips()) {
    changes.insert({skip.step(), absl::StrCat("skip ", skip.steps())});
  }
  const std::vector<uint32_t> sources = SourcesOfSplit(config, v1::SPLIT_TRAIN);
  for (const WeightsFrom& each : GetWeights(config)) {
    if (each.step == 0) continue;
    std::string text = absl::StrCat("weights ", each.step);
    // Without a source that is not drawn: it may have joined since.
    for (size_t s = 0; s < sources.size(); ++s) {
      if (each.weights[s] == 0) continue;
      absl::StrAppend(&text, " ", config.sources(sources[s]).name(), " ",
                      FingerprintNumber(each.weights[s]));
    }
    changes.insert({AltersFrom(order, each.step), std::move(text)});
  }
  return changes;
}

}  // namespace

absl::StatusOr<StepPlan> PlanSteps(const v1::Config& config, v1::Split split) {
  if (split != v1::SPLIT_TRAIN) {
    StepPlan plan;
    plan.steps.emplace_back().set_samples(config.batch().global());
    return plan;
  }
  BALLAST_ASSIGN_OR_RETURN(std::vector<BatchSize> sizes,
                           BatchSizes(config.batch()));
  std::vector<std::pair<uint64_t, uint64_t>> events;  // step, steps to skip
  for (const BatchSize& size : sizes) events.push_back({size.first_step, 0});
  for (const auto& change : config.order().mixture_changes()) {
    events.push_back({change.step(), 0});
  }
  for (const v1::Order::Skip& skip : config.order().skips()) {
    events.push_back({skip.step(), skip.steps()});
  }
  std::sort(events.begin(), events.end());
  Planner planner(std::move(sizes), GetWeights(config));
  for (const auto& [step, count] : events) {
    if (count == 0) {
      planner.Change(step);
    } else {
      planner.Skip(step, count);
    }
  }
  return std::move(planner).Take();
}

uint64_t AltersFrom(const v1::Order& order, uint64_t step) {
  for (const v1::Order::Skip& skip : order.skips()) {
    if (skip.step() < step && step < skip.step() + skip.steps()) {
      return skip.step();
    }
  }
  return step;
}

std::optional<uint64_t> FirstAlteredStep(const v1::Config& a,
                                         const v1::Config& b) {
  const auto left = GetChanges(a), right = GetChanges(b);
  std::vector<std::pair<uint64_t, std::string>> differences;
  std::set_symmetric_difference(left.begin(), left.end(), right.begin(),
                                right.end(), std::back_inserter(differences));
  if (differences.empty()) return std::nullopt;
  return differences.front().first;
}

uint64_t PackRoom(const v1::Config& config) {
  const v1::Topology::Module* const language = FindLanguage(config);
  if (config.packing().mode() != v1::Packing::MODE_SCHEDULED ||
      language == nullptr) {
    return 0;
  }
  return uint64_t{config.packing().max_tokens_per_rank()} * language->cp() *
         Grid(config.topology());
}

double EncoderSlack(const v1::Config& config) {
  const v1::Balance& balance = config.balance();
  if (config.packing().mode() != v1::Packing::MODE_SCHEDULED ||
      balance.algorithm() != v1::Balance::ALGORITHM_REFINED ||
      balance.placement() == v1::Balance::PLACEMENT_SPLIT ||
      config.topology().modules_size() < 2) {
    return 0;
  }
  return config.packing().encoder_slack();
}

uint32_t StepUnit(const v1::Config& config) {
  return config.batch().micro() *
         std::max(config.packing().virtual_pipeline_group(), 1u);
}

absl::StatusOr<uint64_t> EndStep(const v1::Config& config, v1::Split split,
                                 const StepPositions& steps,
                                 const SampleOrder& order) {
  const uint32_t epochs = config.order().epochs();
  if (epochs == 0 || split != v1::SPLIT_TRAIN) return 0;
  const uint64_t samples = order.GetEnd(epochs);
  BALLAST_ASSIGN_OR_RETURN(const uint64_t end, steps.CountEnded(samples));
  if (end == 0) {
    BALLAST_ASSIGN_OR_RETURN(const PositionRange first, steps.Of(0));
    return absl::InvalidArgumentError(
        absl::StrCat("order.epochs is ", epochs, ", so the data end at ",
                     samples, " samples; wanted at least one step of ",
                     first.end - first.first, " samples"));
  }
  return end;
}

}  // namespace ballast
