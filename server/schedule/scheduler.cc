#include "server/schedule/scheduler.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"
#include "proto/schedule/split.h"
#include "server/config/topology.h"
#include "server/model/model_images.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/filled_steps.h"
#include "server/schedule/job_settings.h"
#include "server/schedule/micro_batch_schedule.h"
#include "server/schedule/ownership.h"
#include "server/schedule/pipeline_order.h"
#include "server/schedule/placement_figures.h"
#include "server/schedule/plan_steps.h"
#include "server/schedule/sample_order.h"
#include "server/schedule/schedule_fingerprint.h"
#include "server/schedule/step_plan.h"

namespace ballast {

namespace {

// What the schedules of a split are made of.
struct SplitParts {
  v1::Config config;
  std::vector<const SourceIndex*> indexes;
  // The numbers, in config and indexes, of the order's sources.
  std::vector<uint32_t> sources;
  SampleOrder order;
  StepPositions steps;
  PlanData plan;
  MicroBatchShape shape;           // without costs, which differ by step
  std::optional<PackShape> packs;  // only with packing.mode `scheduled`
  v1::Fingerprint fingerprint;
  v1::Job job;
  ModelImages images;
};

class ConfiguredScheduler final : public Scheduler {
 public:
  explicit ConfiguredScheduler(SplitParts parts)
      : parts_(std::move(parts)), device_share_(parts_.config) {}

  absl::StatusOr<v1::StepSchedule> Schedule(uint64_t step) const override;
  // As Schedule, for the indexes as they are now.
  absl::StatusOr<v1::StepSchedule> Compute(uint64_t step) const;

  const v1::Fingerprint& fingerprint() const override {
    return parts_.fingerprint;
  }
  const v1::Job& job() const override { return parts_.job; }
  absl::StatusOr<v1::GetMixtureResponse> MixtureBefore(
      uint64_t step) const override;

  OrderedSample OrderedAt(uint64_t position) const override {
    const auto found = SamplesAt({position, position + 1});
    if (!found.ok()) return {UINT32_MAX, 0, 0};
    const SampleOrder::Sample& sample = found->samples[0];
    return {sample.source, sample.ordinal, sample.epoch};
  }

  absl::StatusOr<std::optional<uint64_t>> GetStep(
      uint64_t position) const override {
    return parts_.steps.Find(position);
  }

  void FindInParts(Clock* clock) const override {
    parts_.steps.FindInParts(clock);
  }

  // Called while the scheduler is being created.
  void Own(std::unique_ptr<Scheduler> other) {
    others_.push_back(std::move(other));
  }

 private:
  const Scheduler* Find(v1::Split split) const override;
  // Samples in order, and their packs; empty if the packs are not given.
  struct Ordered {
    std::vector<SampleOrder::Sample> samples;
    std::vector<uint32_t> packs;
  };
  // The samples at positions of this split, which are of one step or the same
  // order. Errors: as PlanRows::Read; OUT_OF_RANGE (the plan ends before).
  absl::StatusOr<Ordered> SamplesAt(PositionRange positions) const;
  // Micro-batches balanced together, unless packs are filled.
  uint32_t WindowSize() const;
  // Appends the schedule of `samples`, of which sizes are not known, to
  // `schedule`. They are whole micro-batches, or with packing.mode `scheduled`
  // a whole step, whose packs are `packs` if these are not empty.
  absl::Status AddWindow(const MicroBatchShape& shape,
                         std::vector<ScheduledSample> samples,
                         const std::vector<uint32_t>& packs,
                         v1::StepSchedule* schedule) const;
  SampleImages Images(const SampleOrder::Sample& sample,
                      absl::Span<const ImageSize> sides) const {
    return GetSampleImages(parts_.config, sample.source, sample.ordinal,
                           sample.epoch, sides);
  }
  // Has the recipe plan the images of all samples together. Errors: as
  // SourceIndex::sample.
  absl::Status PlanAhead(const std::vector<ScheduledSample>& samples) const;
  // Sets `size` of a sample whose other fields are known.
  absl::Status Measure(ScheduledSample* sample) const;
  // Makes the indexes read the entries of these samples at once.
  void Prefetch(const std::vector<ScheduledSample>& samples) const;
  StageTimes Times(const v1::MicroBatchSchedule& micro_batch) const;
  void OrderForPipeline(v1::StepSchedule* schedule) const;

  const SplitParts parts_;
  const DeviceShare device_share_;
  std::vector<std::unique_ptr<Scheduler>> others_;  // of the other splits
};

const Scheduler* ConfiguredScheduler::Find(v1::Split split) const {
  for (const auto& other : others_) {
    if (other->job().split() == split) return other.get();
  }
  return this;
}

absl::StatusOr<ConfiguredScheduler::Ordered> ConfiguredScheduler::SamplesAt(
    PositionRange positions) const {
  Ordered ordered;
  ordered.samples.reserve(positions.end - positions.first);
  if (parts_.plan.rows != nullptr &&
      positions.first >= parts_.plan.first_position) {
    const uint64_t first = positions.first - parts_.plan.first_position;
    const uint64_t end = positions.end - parts_.plan.first_position;
    if (end > parts_.plan.rows->starts().back()) {
      return absl::OutOfRangeError(
          absl::StrCat("order.plan has ", parts_.plan.rows->starts().back(),
                       " rows; row ", end - 1, " was requested"));
    }
    BALLAST_ASSIGN_OR_RETURN(const std::vector<PlanRow> rows,
                             parts_.plan.rows->Read(first, end - first));
    for (const PlanRow& row : rows) {
      ordered.samples.push_back({row.source, row.ordinal, row.epoch});
      if (row.pack != PlanRow::kNoPack) ordered.packs.push_back(row.pack);
    }
    return ordered;
  }
  for (uint64_t at = positions.first; at < positions.end; ++at) {
    SampleOrder::Sample sample = parts_.order.At(at);
    sample.source = parts_.sources[sample.source];
    ordered.samples.push_back(sample);
  }
  return ordered;
}

absl::StatusOr<v1::GetMixtureResponse> ConfiguredScheduler::MixtureBefore(
    uint64_t step) const {
  BALLAST_ASSIGN_OR_RETURN(const uint64_t position, parts_.steps.First(step));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<PositionRange> before,
                           parts_.steps.Before(step));
  // What the configured order draws, then the rows of a plan.
  const uint64_t ordered_end =
      parts_.plan.rows == nullptr
          ? position
          : std::min(position, parts_.plan.first_position);
  const size_t sources = parts_.sources.size();
  std::vector<SampleOrder::Drawn> all(sources), trained(sources);
  parts_.order.AddDrawn(0, ordered_end, &all);
  v1::GetMixtureResponse mixture;
  mixture.set_step(step);
  for (const PositionRange& range : before) {
    mixture.set_samples(mixture.samples() + range.end - range.first);
    parts_.order.AddDrawn(std::min(range.first, ordered_end),
                          std::min(range.end, ordered_end), &trained);
  }
  std::vector<double> shares = parts_.order.SharesAt(ordered_end);
  if (parts_.plan.rows != nullptr && position >= parts_.plan.first_position) {
    const uint64_t rows = parts_.plan.rows->starts().back();
    BALLAST_ASSIGN_OR_RETURN(
        const std::vector<uint64_t> drawn,
        parts_.plan.rows->CountSources(position - parts_.plan.first_position));
    BALLAST_ASSIGN_OR_RETURN(const std::vector<uint64_t> whole,
                             parts_.plan.rows->CountSources(rows));
    // The rows of a plan file are both drawn and wanted.
    for (size_t s = 0; s < sources; ++s) {
      const uint64_t count = drawn[parts_.sources[s]];
      all[s].samples += count;
      trained[s].samples += count;
      trained[s].wanted += static_cast<double>(count);
      shares[s] = static_cast<double>(whole[parts_.sources[s]]) / rows;
    }
  }
  for (size_t s = 0; s < sources; ++s) {
    v1::GetMixtureResponse::Source* source = mixture.add_sources();
    source->set_name(parts_.order.sources()[s].name);
    source->set_size(parts_.order.sources()[s].size);
    source->set_samples(trained[s].samples);
    source->set_skipped(all[s].samples - trained[s].samples);
    source->set_weight(shares[s]);
    if (mixture.samples() > 0) {
      source->set_wanted_share(trained[s].wanted / mixture.samples());
    }
  }
  return mixture;
}

absl::StatusOr<v1::StepSchedule> ConfiguredScheduler::Schedule(
    uint64_t step) const {
  absl::StatusOr<v1::StepSchedule> schedule = Compute(step);
  // Checked after the indexes were read: so everything that the step read was
  // valid.
  for (const uint32_t source : parts_.sources) {
    BALLAST_RETURN_IF_ERROR(parts_.indexes[source]->CheckUnchanged());
  }
  return schedule;
}

absl::StatusOr<v1::StepSchedule> ConfiguredScheduler::Compute(
    uint64_t step) const {
  if (parts_.job.end_step() != 0 && step >= parts_.job.end_step()) {
    return absl::OutOfRangeError(
        absl::StrCat("the data end before step ", parts_.job.end_step(),
                     parts_.plan.rows != nullptr
                         ? std::string(" (the end of order.plan)")
                         : absl::StrCat(" (order.epochs is ",
                                        parts_.config.order().epochs(), ")"),
                     "; step ", step, " was requested"));
  }
  BALLAST_ASSIGN_OR_RETURN(const PositionRange positions,
                           parts_.steps.Of(step));
  BALLAST_ASSIGN_OR_RETURN(const Ordered ordered, SamplesAt(positions));
  const uint64_t samples = ordered.samples.size();
  v1::StepSchedule schedule;
  schedule.set_step(step);
  schedule.set_split(parts_.job.split());
  schedule.set_fingerprint(parts_.fingerprint.hash());
  for (const v1::Source& source : parts_.config.sources()) {
    schedule.add_sources(source.name());
  }
  schedule.mutable_totals();
  MicroBatchShape shape = parts_.shape;
  // The steps of balance.cost_changes are steps of train.
  shape.costs =
      GetModuleCosts(CostAt(parts_.config.balance(),
                            parts_.job.split() == v1::SPLIT_TRAIN ? step : 0));
  // Each window of micro-batches is balanced together; the last of a step may
  // be shorter.
  const uint64_t window =
      parts_.packs ? samples
                   : uint64_t{WindowSize()} * parts_.config.batch().micro();
  for (uint64_t done = 0; done < samples; done += window) {
    std::vector<ScheduledSample> part(std::min(window, samples - done));
    for (uint32_t i = 0; i < part.size(); ++i) {
      part[i].position = positions.first + done + i;
      part[i].sample = ordered.samples[done + i];
    }
    BALLAST_RETURN_IF_ERROR(
        AddWindow(shape, std::move(part), ordered.packs, &schedule));
  }
  // A plan file's packs are in the order in which they run.
  if (parts_.config.balance().order() == v1::Balance::ORDER_PIPELINE &&
      ordered.packs.empty()) {
    OrderForPipeline(&schedule);
  }
  return schedule;
}

// The stages' forward times: all encoders, then the pp stages of the language
// model.
StageTimes ConfiguredScheduler::Times(
    const v1::MicroBatchSchedule& micro_batch) const {
  const auto largest_load = [&](v1::Module module) {
    const v1::ModuleSchedule* found = FindModule(micro_batch, module);
    if (found == nullptr) return 0.0;
    return *std::max_element(found->load_after().begin(),
                             found->load_after().end());
  };
  StageTimes times = {0};
  for (const ModuleRanks& ranks : parts_.shape.modules) {
    if (IsEncoder(ranks.module)) times[0] += largest_load(ranks.module);
  }
  const uint32_t pp = PpSize(parts_.config, v1::MODULE_LANGUAGE);
  times.insert(times.end(), pp, largest_load(v1::MODULE_LANGUAGE) / pp);
  return times;
}

void ConfiguredScheduler::OrderForPipeline(v1::StepSchedule* schedule) const {
  std::vector<StageTimes> times;
  for (const v1::MicroBatchSchedule& micro_batch : schedule->micro_batches()) {
    times.push_back(Times(micro_batch));
  }
  google::protobuf::RepeatedPtrField<v1::MicroBatchSchedule> ordered;
  for (const uint32_t m : PipelineOrder(times)) {
    const uint32_t slot = ordered.size();
    v1::MicroBatchSchedule* micro_batch = ordered.Add();
    micro_batch->Swap(schedule->mutable_micro_batches(m));
    for (uint32_t& each : *micro_batch->mutable_slot()) each = slot;
  }
  schedule->mutable_micro_batches()->Swap(&ordered);
}

uint32_t ConfiguredScheduler::WindowSize() const {
  return parts_.config.balance().scope() == v1::Balance::SCOPE_WINDOW
             ? parts_.config.balance().window()
             : 1;
}

void ConfiguredScheduler::Prefetch(
    const std::vector<ScheduledSample>& samples) const {
  std::vector<std::vector<uint64_t>> ordinals(parts_.indexes.size());
  for (const ScheduledSample& scheduled : samples) {
    ordinals[scheduled.sample.source].push_back(scheduled.sample.ordinal);
  }
  for (size_t i = 0; i < parts_.indexes.size(); ++i) {
    parts_.indexes[i]->Prefetch(ordinals[i]);
  }
}

absl::Status ConfiguredScheduler::PlanAhead(
    const std::vector<ScheduledSample>& samples) const {
  if (parts_.images.recipe() == nullptr) return absl::OkStatus();
  std::vector<SampleImages> images;
  for (const ScheduledSample& each : samples) {
    BALLAST_ASSIGN_OR_RETURN(
        const IndexedSample indexed,
        parts_.indexes[each.sample.source]->sample(each.sample.ordinal));
    images.push_back(Images(each.sample, indexed.media.images()));
  }
  parts_.images.PlanAhead(images);
  return absl::OkStatus();
}

absl::Status ConfiguredScheduler::Measure(ScheduledSample* scheduled) const {
  const SampleOrder::Sample& sample = scheduled->sample;
  const absl::Status status = [&]() -> absl::Status {
    BALLAST_ASSIGN_OR_RETURN(
        const IndexedSample indexed,
        parts_.indexes[sample.source]->sample(sample.ordinal));
    BALLAST_ASSIGN_OR_RETURN(
        scheduled->size,
        MeasureSample(indexed, Images(sample, indexed.media.images()),
                      parts_.images));
    device_share_.Limit(sample.source, sample.ordinal,
                        &scheduled->size.encoded_bytes);
    return absl::OkStatus();
  }();
  if (status.ok()) return status;
  return Annotate(
      status,
      absl::StrCat("sample ", parts_.config.sources(sample.source).name(), ":",
                   sample.ordinal));
}

absl::Status ConfiguredScheduler::AddWindow(
    const MicroBatchShape& shape, std::vector<ScheduledSample> samples,
    const std::vector<uint32_t>& packs, v1::StepSchedule* schedule) const {
  Prefetch(samples);
  BALLAST_RETURN_IF_ERROR(PlanAhead(samples));
  for (ScheduledSample& sample : samples) {
    BALLAST_RETURN_IF_ERROR(Measure(&sample));
  }
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<Ownership> owners,
      !parts_.packs   ? AssignOwners(samples, shape)
      : packs.empty() ? AssignPackedOwners(samples, shape, *parts_.packs)
                      : AssignGivenPacks(samples, packs, shape, *parts_.packs));
  for (const Ownership& ownership : owners) {
    v1::MicroBatchSchedule* micro_batch = schedule->add_micro_batches();
    *micro_batch = MakeMicroBatch(samples, ownership,
                                  schedule->micro_batches_size() - 1, shape);
    AddTotals(micro_batch->totals(), schedule->mutable_totals());
  }
  return absl::OkStatus();
}

// The pass over a split of valid or test; `numbers` are its sources' places
// among `sources` configured ones. Errors: as StepPositions::First.
absl::StatusOr<v1::Job::Pass> MakePass(const SampleOrder& order,
                                       const std::vector<uint32_t>& numbers,
                                       int sources,
                                       const StepPositions& steps) {
  constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  v1::Job::Pass pass;
  pass.mutable_repeats_from()->Resize(sources, kNever);
  uint64_t end = 0;
  for (uint32_t s = 0; s < numbers.size(); ++s) {
    const uint64_t size = order.sources()[s].size;
    pass.set_repeats_from(numbers[s], order.GetPosition(s, size));
    const uint64_t last = order.GetPosition(s, size - 1);
    if (last != kNever) end = std::max(end, last + 1);
  }
  BALLAST_ASSIGN_OR_RETURN(uint64_t end_step, steps.CountEnded(end));
  BALLAST_ASSIGN_OR_RETURN(const uint64_t first, steps.First(end_step));
  if (first < end) ++end_step;
  pass.set_end_step(end_step);
  return pass;
}

// The sources of a split: their numbers in the configuration, and as the order
// takes them.
struct SplitSources {
  std::vector<uint32_t> numbers;
  std::vector<SampleOrder::Source> sources;
};

// Errors: INVALID_ARGUMENT (an empty source).
absl::StatusOr<SplitSources> FindSources(
    const v1::Config& config, const std::vector<const SourceIndex*>& indexes,
    v1::Split split) {
  SplitSources found;
  found.numbers = SourcesOfSplit(config, split);
  for (const uint32_t i : found.numbers) {
    const v1::Source& source = config.sources(i);
    if (indexes[i]->size() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("source ", source.name(),
                       ": its index holds no sample; either all are bad, or "
                       "`path` names the wrong files"));
    }
    found.sources.push_back({source.name(), indexes[i]->size(), source.weight(),
                             indexes[i]->group_starts(),
                             std::max(source.shuffle_groups(), 1u)});
  }
  return found;
}

// Sets what the indexes leave out of these sources.
void SetLeftOut(const std::vector<v1::LeftOut>& all,
                const SplitSources& sources, v1::Job* job) {
  for (const v1::LeftOut& left_out : all) {
    const bool is_of_split =
        std::any_of(sources.sources.begin(), sources.sources.end(),
                    [&](const SampleOrder::Source& source) {
                      return source.name == left_out.source();
                    });
    if (is_of_split) *job->add_left_out() = left_out;
  }
}

// Sets where the steps of a split without a plan end. Errors: as EndStep,
// StepPositions::First.
absl::Status SetEnds(const v1::Config& config, const SplitSources& sources,
                     const SampleOrder& order, const StepPositions& steps,
                     v1::Job* job) {
  BALLAST_ASSIGN_OR_RETURN(const uint64_t end_step,
                           EndStep(config, job->split(), steps, order));
  job->set_end_step(end_step);
  BALLAST_ASSIGN_OR_RETURN(const uint64_t an_epoch,
                           steps.CountEnded(order.GetEnd(1)));
  job->set_steps_per_epoch(an_epoch);
  if (job->split() == v1::SPLIT_TRAIN) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(
      *job->mutable_one_pass(),
      MakePass(order, sources.numbers, config.sources_size(), steps));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ConfiguredScheduler>> CreateOfSplit(
    const v1::Config& job_config,
    const std::vector<const SourceIndex*>& indexes,
    const SchedulerInputs& inputs, v1::Split split) {
  const v1::Config config = ConfigOfSplit(job_config, split);
  BALLAST_ASSIGN_OR_RETURN(SplitSources sources,
                           FindSources(config, indexes, split));
  BALLAST_ASSIGN_OR_RETURN(MicroBatchShape shape, MakeShape(config));
  BALLAST_ASSIGN_OR_RETURN(StepPlan configured, PlanSteps(config, split));
  // One fingerprint covers the sizes of all splits.
  BALLAST_ASSIGN_OR_RETURN(const std::vector<BatchSize> sizes,
                           BatchSizes(job_config.batch()));
  v1::Fingerprint fingerprint =
      ScheduleFingerprint(job_config, indexes, split, sizes, inputs.plan.get());
  v1::Job job = MakeJob(config, shape.modules);
  job.set_split(split);
  SetLeftOut(inputs.left_out, sources, &job);
  BALLAST_ASSIGN_OR_RETURN(ModelImages images,
                           ModelImages::Create(config.model(), inputs.recipe));
  const auto make_order = [&](const std::vector<SampleOrder::Change>& changes) {
    return SampleOrder(sources.sources, changes,
                       SeedOfSplit(config.order().seed(), split),
                       config.order().shuffle());
  };
  const bool is_filled = split == v1::SPLIT_TRAIN && AreFilled(config);
  const std::string name = StartsName(fingerprint);
  FilledSteps filled;
  std::vector<uint64_t> loaded;
  if (is_filled) {
    if (inputs.load_starts != nullptr) loaded = inputs.load_starts(name);
    BALLAST_ASSIGN_OR_RETURN(
        filled,
        FindFilledSteps(config, {make_order, sources.numbers, indexes, images},
                        loaded));
    configured.mixtures = filled.mixtures;
    configured.steps.resize(1);
    configured.steps[0].set_samples(0);
    SetLargest(filled.largest, &job);
  }
  SampleOrder order = make_order(configured.mixtures);
  std::shared_ptr<const StepStarts> starts = filled.steps;
  PlanData plan;
  if (split == v1::SPLIT_TRAIN) plan.rows = inputs.plan;
  uint64_t first_own_step = 0;
  if (plan.rows != nullptr) {
    BALLAST_RETURN_IF_ERROR(CheckBeforePlan(config, *plan.rows));
    first_own_step = plan.rows->first_step();
    v1::Job before = job;
    SetRanges(configured.steps, &before);
    BALLAST_ASSIGN_OR_RETURN(plan.first_position,
                             FirstPosition(before, first_own_step));
    starts = MakePlanStarts(plan);
    AddPlanRanges(plan, config.batch().micro(), &configured.steps);
    SetLargest(std::max<uint64_t>(LargestStep(*plan.rows), job.global_batch()),
               &job);
  }
  SetRanges(configured.steps, &job);
  StepPositions steps(job, first_own_step, starts, filled.skips);
  BALLAST_ASSIGN_OR_RETURN(const std::optional<PackShape> packs,
                           MakePackShape(config, job));
  if (plan.rows != nullptr) {
    BALLAST_RETURN_IF_ERROR(
        CheckPlanSteps(config, *plan.rows, packs, indexes, images));
    job.set_end_step(first_own_step + plan.rows->starts().size() - 1);
  } else {
    BALLAST_RETURN_IF_ERROR(SetEnds(config, sources, order, steps, &job));
  }
  if (is_filled && inputs.save_starts != nullptr) {
    filled.steps->SaveFound(
        [save = inputs.save_starts, name](const std::vector<uint64_t>& starts) {
          save(name, starts);
        },
        loaded.size());
  }
  return std::make_unique<ConfiguredScheduler>(
      SplitParts{.config = config,
                 .indexes = indexes,
                 .sources = std::move(sources.numbers),
                 .order = std::move(order),
                 .steps = std::move(steps),
                 .plan = std::move(plan),
                 .shape = std::move(shape),
                 .packs = packs,
                 .fingerprint = std::move(fingerprint),
                 .job = std::move(job),
                 .images = std::move(images)});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(
    const v1::Config& given, const std::vector<const SourceIndex*>& indexes,
    const SchedulerInputs& inputs) {
  v1::Config config = given;
  BALLAST_RETURN_IF_ERROR(ResolveVideos(indexes, &config));
  BALLAST_RETURN_IF_ERROR(CheckRowsTaken(indexes, config));
  BALLAST_RETURN_IF_ERROR(CheckMediaModules(indexes, config));
  if (SourcesOfSplit(config, v1::SPLIT_TRAIN).empty()) {
    return absl::InvalidArgumentError(
        "sources: none has `split: train`; wanted at least one");
  }
  BALLAST_ASSIGN_OR_RETURN(
      std::unique_ptr<ConfiguredScheduler> train,
      CreateOfSplit(config, indexes, inputs, v1::SPLIT_TRAIN));
  for (const v1::Split split : GetSplits(config)) {
    if (split == v1::SPLIT_TRAIN) continue;
    BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> other,
                             CreateOfSplit(config, indexes, inputs, split));
    train->Own(std::move(other));
  }
  return train;
}

absl::StatusOr<v1::GetMixtureResponse> Scheduler::MixtureBefore(
    uint64_t /*step*/) const {
  return absl::UnimplementedError("this scheduler has no sources");
}

Scheduler::OrderedSample Scheduler::OrderedAt(uint64_t /*position*/) const {
  return {UINT32_MAX, 0, 0};
}

absl::StatusOr<std::optional<uint64_t>> Scheduler::GetStep(
    uint64_t position) const {
  return StepOfPosition(job(), position);
}

absl::StatusOr<const Scheduler*> Scheduler::OfSplit(v1::Split split) const {
  BALLAST_RETURN_IF_ERROR(CheckSplit(job(), split));
  return Find(split);
}

}  // namespace ballast
