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
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "proto/block/block_plan.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "server/config/topology.h"
#include "server/model/indexed_clip.h"
#include "server/model/model_images.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/filled_steps.h"
#include "server/schedule/micro_batch_schedule.h"
#include "server/schedule/ownership.h"
#include "server/schedule/pipeline_order.h"
#include "server/schedule/placement_figures.h"
#include "server/schedule/plan_steps.h"
#include "server/schedule/sample_order.h"
#include "server/schedule/schedule_fingerprint.h"
#include "server/schedule/step_plan.h"
#include "server/settings/source_fields.h"

namespace ballast {

namespace {

// Fails unless the step of `samples` samples fills the packs of all ranks.
absl::Status CheckPackMultiple(absl::string_view key, uint32_t samples,
                               uint64_t multiple) {
  if (multiple != 0 && samples % multiple == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      key, " is ", samples,
      "; wanted, with packing.mode `scheduled`, a multiple of the grid times "
      "packing.virtual_pipeline_group, which is ",
      multiple));
}

}  // namespace

absl::StatusOr<std::optional<PackShape>> MakePackShape(const v1::Config& config,
                                                       const v1::Job& job) {
  if (config.packing().mode() != v1::Packing::MODE_SCHEDULED) {
    return std::optional<PackShape>();
  }
  if (config.balance().delivery() == v1::DELIVERY_OFF) {
    return absl::InvalidArgumentError(
        "packing.mode: `scheduled` moves samples to other ranks than their "
        "readers, which balance.delivery `off` forbids");
  }
  const v1::Topology::Module* const language = FindLanguage(config);
  if (language == nullptr) {
    return absl::InvalidArgumentError(
        "packing.mode: `scheduled` packs tokens, but topology.modules has no "
        "language");
  }
  PackShape packs;
  packs.capacity = PackCapacity(config, *language);
  packs.dynamic_cp = DynamicCp(config);
  packs.align = PackAlign(config, v1::MODULE_LANGUAGE);
  packs.micro_batch_multiple = config.packing().virtual_pipeline_group();
  packs.encoder_slack = EncoderSlack(config);
  const uint64_t multiple =
      uint64_t{Grid(config.topology())} * packs.micro_batch_multiple;
  BALLAST_RETURN_IF_ERROR(
      CheckPackMultiple("batch.global", config.batch().global(), multiple));
  for (const v1::StepRange& range : job.step_ranges()) {
    if (range.samples() == 0) continue;  // each step has its own size
    BALLAST_RETURN_IF_ERROR(
        CheckPackMultiple(absl::StrCat("the batch of step ", range.first_step(),
                                       " (batch.rampup, batch.changes)"),
                          range.samples(), multiple));
  }
  return std::make_optional(packs);
}

namespace {

class ConfiguredScheduler final : public Scheduler {
 public:
  ConfiguredScheduler(const v1::Config& config,
                      std::vector<const SourceIndex*> indexes,
                      std::vector<uint32_t> sources, SampleOrder order,
                      StepPositions steps, PlanData plan, MicroBatchShape shape,
                      std::optional<PackShape> packs,
                      v1::Fingerprint fingerprint, v1::Job job,
                      ModelImages images)
      : config_(config),
        indexes_(std::move(indexes)),
        sources_(std::move(sources)),
        order_(std::move(order)),
        steps_(std::move(steps)),
        plan_(std::move(plan)),
        shape_(std::move(shape)),
        packs_(packs),
        fingerprint_(std::move(fingerprint)),
        job_(std::move(job)),
        images_(std::move(images)),
        device_share_(config) {}

  absl::StatusOr<v1::StepSchedule> Schedule(uint64_t step) const override;
  // As Schedule, for the indexes as they are now.
  absl::StatusOr<v1::StepSchedule> Compute(uint64_t step) const;

  const v1::Fingerprint& fingerprint() const override { return fingerprint_; }
  const v1::Job& job() const override { return job_; }
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
    return steps_.Find(position);
  }

  void FindInParts(Clock* clock) const override { steps_.FindInParts(clock); }

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
    return GetSampleImages(config_, sample.source, sample.ordinal, sample.epoch,
                           sides);
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

  const v1::Config config_;
  const std::vector<const SourceIndex*> indexes_;
  // The numbers, in config_ and indexes_, of order_'s sources.
  const std::vector<uint32_t> sources_;
  const SampleOrder order_;
  const StepPositions steps_;
  const PlanData plan_;
  const MicroBatchShape shape_;           // without costs, which differ by step
  const std::optional<PackShape> packs_;  // only with packing.mode `scheduled`
  const v1::Fingerprint fingerprint_;
  const v1::Job job_;
  const ModelImages images_;
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
  if (plan_.rows != nullptr && positions.first >= plan_.first_position) {
    const uint64_t first = positions.first - plan_.first_position;
    const uint64_t end = positions.end - plan_.first_position;
    if (end > plan_.rows->starts().back()) {
      return absl::OutOfRangeError(
          absl::StrCat("order.plan has ", plan_.rows->starts().back(),
                       " rows; row ", end - 1, " was requested"));
    }
    BALLAST_ASSIGN_OR_RETURN(const std::vector<PlanRow> rows,
                             plan_.rows->Read(first, end - first));
    for (const PlanRow& row : rows) {
      ordered.samples.push_back({row.source, row.ordinal, row.epoch});
      if (row.pack != PlanRow::kNoPack) ordered.packs.push_back(row.pack);
    }
    return ordered;
  }
  for (uint64_t at = positions.first; at < positions.end; ++at) {
    SampleOrder::Sample sample = order_.At(at);
    sample.source = sources_[sample.source];
    ordered.samples.push_back(sample);
  }
  return ordered;
}

absl::StatusOr<v1::GetMixtureResponse> ConfiguredScheduler::MixtureBefore(
    uint64_t step) const {
  BALLAST_ASSIGN_OR_RETURN(const uint64_t position, steps_.First(step));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<PositionRange> before,
                           steps_.Before(step));
  // What the configured order draws, then the rows of a plan.
  const uint64_t ordered_end = plan_.rows == nullptr
                                   ? position
                                   : std::min(position, plan_.first_position);
  const size_t sources = sources_.size();
  std::vector<SampleOrder::Drawn> all(sources), trained(sources);
  order_.AddDrawn(0, ordered_end, &all);
  v1::GetMixtureResponse mixture;
  mixture.set_step(step);
  for (const PositionRange& range : before) {
    mixture.set_samples(mixture.samples() + range.end - range.first);
    order_.AddDrawn(std::min(range.first, ordered_end),
                    std::min(range.end, ordered_end), &trained);
  }
  std::vector<double> shares = order_.SharesAt(ordered_end);
  if (plan_.rows != nullptr && position >= plan_.first_position) {
    const uint64_t rows = plan_.rows->starts().back();
    BALLAST_ASSIGN_OR_RETURN(
        const std::vector<uint64_t> drawn,
        plan_.rows->CountSources(position - plan_.first_position));
    BALLAST_ASSIGN_OR_RETURN(const std::vector<uint64_t> whole,
                             plan_.rows->CountSources(rows));
    // The rows of a plan file are both drawn and wanted.
    for (size_t s = 0; s < sources; ++s) {
      const uint64_t count = drawn[sources_[s]];
      all[s].samples += count;
      trained[s].samples += count;
      trained[s].wanted += static_cast<double>(count);
      shares[s] = static_cast<double>(whole[sources_[s]]) / rows;
    }
  }
  for (size_t s = 0; s < sources; ++s) {
    v1::GetMixtureResponse::Source* source = mixture.add_sources();
    source->set_name(order_.sources()[s].name);
    source->set_size(order_.sources()[s].size);
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
  for (const uint32_t source : sources_) {
    BALLAST_RETURN_IF_ERROR(indexes_[source]->CheckUnchanged());
  }
  return schedule;
}

absl::StatusOr<v1::StepSchedule> ConfiguredScheduler::Compute(
    uint64_t step) const {
  if (job_.end_step() != 0 && step >= job_.end_step()) {
    return absl::OutOfRangeError(absl::StrCat(
        "the data end before step ", job_.end_step(),
        plan_.rows != nullptr
            ? std::string(" (the end of order.plan)")
            : absl::StrCat(" (order.epochs is ", config_.order().epochs(), ")"),
        "; step ", step, " was requested"));
  }
  BALLAST_ASSIGN_OR_RETURN(const PositionRange positions, steps_.Of(step));
  BALLAST_ASSIGN_OR_RETURN(const Ordered ordered, SamplesAt(positions));
  const uint64_t samples = ordered.samples.size();
  v1::StepSchedule schedule;
  schedule.set_step(step);
  schedule.set_split(job_.split());
  schedule.set_fingerprint(fingerprint_.hash());
  for (const v1::Source& source : config_.sources()) {
    schedule.add_sources(source.name());
  }
  schedule.mutable_totals();
  MicroBatchShape shape = shape_;
  // The steps of balance.cost_changes are steps of train.
  shape.costs = GetModuleCosts(
      CostAt(config_.balance(), job_.split() == v1::SPLIT_TRAIN ? step : 0));
  // Each window of micro-batches is balanced together; the last of a step may
  // be shorter.
  const uint64_t window =
      packs_ ? samples : uint64_t{WindowSize()} * config_.batch().micro();
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
  if (config_.balance().order() == v1::Balance::ORDER_PIPELINE &&
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
  for (const ModuleRanks& ranks : shape_.modules) {
    if (IsEncoder(ranks.module)) times[0] += largest_load(ranks.module);
  }
  const uint32_t pp = PpSize(config_, v1::MODULE_LANGUAGE);
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
  return config_.balance().scope() == v1::Balance::SCOPE_WINDOW
             ? config_.balance().window()
             : 1;
}

void ConfiguredScheduler::Prefetch(
    const std::vector<ScheduledSample>& samples) const {
  std::vector<std::vector<uint64_t>> ordinals(indexes_.size());
  for (const ScheduledSample& scheduled : samples) {
    ordinals[scheduled.sample.source].push_back(scheduled.sample.ordinal);
  }
  for (size_t i = 0; i < indexes_.size(); ++i) {
    indexes_[i]->Prefetch(ordinals[i]);
  }
}

absl::Status ConfiguredScheduler::PlanAhead(
    const std::vector<ScheduledSample>& samples) const {
  if (images_.recipe() == nullptr) return absl::OkStatus();
  std::vector<SampleImages> images;
  for (const ScheduledSample& each : samples) {
    BALLAST_ASSIGN_OR_RETURN(
        const IndexedSample indexed,
        indexes_[each.sample.source]->sample(each.sample.ordinal));
    images.push_back(Images(each.sample, indexed.media.images()));
  }
  images_.PlanAhead(images);
  return absl::OkStatus();
}

absl::Status ConfiguredScheduler::Measure(ScheduledSample* scheduled) const {
  const SampleOrder::Sample& sample = scheduled->sample;
  const absl::Status status = [&]() -> absl::Status {
    BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                             indexes_[sample.source]->sample(sample.ordinal));
    BALLAST_ASSIGN_OR_RETURN(
        scheduled->size,
        MeasureSample(indexed, Images(sample, indexed.media.images()),
                      images_));
    device_share_.Limit(sample.source, sample.ordinal,
                        &scheduled->size.encoded_bytes);
    return absl::OkStatus();
  }();
  if (status.ok()) return status;
  return Annotate(status,
                  absl::StrCat("sample ", config_.sources(sample.source).name(),
                               ":", sample.ordinal));
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
      !packs_         ? AssignOwners(samples, shape)
      : packs.empty() ? AssignPackedOwners(samples, shape, *packs_)
                      : AssignGivenPacks(samples, packs, shape, *packs_));
  for (const Ownership& ownership : owners) {
    v1::MicroBatchSchedule* micro_batch = schedule->add_micro_batches();
    *micro_batch = MakeMicroBatch(samples, ownership,
                                  schedule->micro_batches_size() - 1, shape);
    AddTotals(micro_batch->totals(), schedule->mutable_totals());
  }
  return absl::OkStatus();
}

absl::StatusOr<MicroBatchShape> MakeShape(const v1::Config& config) {
  MicroBatchShape shape;
  shape.micro_batch = config.batch().micro();
  shape.grid = Grid(config.topology());
  shape.colocated = config.topology().colocated();
  shape.balance = config.balance();
  // The shape is copied for every step.
  shape.balance.clear_cost_changes();
  shape.balance.clear_cost();
  shape.geometry = {config.model().patch(), config.model().position_axes(),
                    GetCropShape(config.model()).margin()};
  v1::Job fields;
  for (v1::Job::Field& field : GetJobFields(config)) {
    *fields.add_fields() = std::move(field);
  }
  PlaceFields(fields.fields(), &shape.geometry.fields);
  if (const v1::AudioFamily* audio = GetAudioFamily(config.model())) {
    shape.geometry.clip_width = GetClipShape(*audio).width();
  }
  shape.geometry.float_positions = HasFloatPositions(config.model());
  shape.patches_a_token = config.model().merge() * config.model().merge();
  for (const v1::Module module : Modules(config)) {
    BALLAST_ASSIGN_OR_RETURN(ServerOfRank servers,
                             FindServerOfRank(config, module));
    shape.modules.push_back(
        {module, DpSize(config, module), std::move(servers), GetMedia(module)});
  }
  return shape;
}

v1::Job MakeJob(const v1::Config& config,
                const std::vector<ModuleRanks>& modules) {
  v1::Job job;
  for (const ModuleRanks& ranks : modules) {
    v1::Job::ModuleSize* size = job.add_modules();
    size->set_module(ranks.module);
    size->set_dp(ranks.dp);
    size->set_align(PackAlign(config, ranks.module));
    const v1::Topology::Module& sizes =
        config.topology().modules().at(std::string(ModuleName(ranks.module)));
    size->set_tp(sizes.tp());
    size->set_pp(sizes.pp());
    size->set_cp(sizes.cp());
    if (config.balance().delivery() == v1::DELIVERY_HYBRID) {
      size->mutable_server_of_rank()->Add(ranks.server_of_rank.begin(),
                                          ranks.server_of_rank.end());
    }
  }
  job.set_global_batch(config.batch().global());
  job.set_micro_batch(config.batch().micro());
  job.set_delivery(config.balance().delivery());
  *job.mutable_model() = config.model();
  *job.mutable_crop_shape() = GetCropShape(config.model());
  if (const v1::AudioFamily* audio = GetAudioFamily(config.model())) {
    *job.mutable_clip_shape() = GetClipShape(*audio);
  }
  job.set_float_positions(HasFloatPositions(config.model()));
  job.set_colocated(config.topology().colocated());
  job.set_virtual_pipeline_group(config.packing().virtual_pipeline_group());
  for (const v1::Split split : GetSplits(config)) job.add_splits(split);
  job.set_padded(config.packing().mode() == v1::Packing::MODE_PADDED);
  job.set_counts_in_schedules(config.packing().mode() ==
                              v1::Packing::MODE_SCHEDULED);
  job.set_row_length(config.packing().row_length());
  job.set_placement(config.balance().placement());
  if (const uint32_t dynamic = DynamicCp(config); dynamic > 1) {
    job.set_dynamic_cp(dynamic);
  }
  for (v1::Job::Field& field : GetJobFields(config)) {
    *job.add_fields() = std::move(field);
  }
  return job;
}

void SetRanges(const std::vector<v1::StepRange>& steps, v1::Job* job) {
  if (steps.size() > 1 || SamplesOfStep(*job, 0) != steps[0].samples()) {
    job->mutable_step_ranges()->Assign(steps.begin(), steps.end());
  }
}

// Sets the job's global_batch to `samples`, rounded up to whole micro-batches.
void SetLargest(uint64_t samples, v1::Job* job) {
  job->set_global_batch(AlignUp(samples, job->micro_batch()));
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

absl::StatusOr<std::unique_ptr<ConfiguredScheduler>> CreateOfSplit(
    const v1::Config& job_config,
    const std::vector<const SourceIndex*>& indexes,
    const SchedulerInputs& inputs, v1::Split split) {
  const v1::Config config = ConfigOfSplit(job_config, split);
  std::vector<uint32_t> numbers = SourcesOfSplit(config, split);
  std::vector<SampleOrder::Source> sources;
  for (const uint32_t i : numbers) {
    const v1::Source& source = config.sources(i);
    if (indexes[i]->size() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("source ", source.name(),
                       ": its index holds no sample; either all are bad, or "
                       "`path` names the wrong files"));
    }
    sources.push_back({source.name(), indexes[i]->size(), source.weight(),
                       indexes[i]->group_starts(),
                       std::max(source.shuffle_groups(), 1u)});
  }
  BALLAST_ASSIGN_OR_RETURN(MicroBatchShape shape, MakeShape(config));
  BALLAST_ASSIGN_OR_RETURN(StepPlan configured, PlanSteps(config, split));
  // One fingerprint covers the sizes of all splits.
  BALLAST_ASSIGN_OR_RETURN(const std::vector<BatchSize> sizes,
                           BatchSizes(job_config.batch()));
  v1::Fingerprint fingerprint =
      ScheduleFingerprint(job_config, indexes, split, sizes, inputs.plan.get());
  v1::Job job = MakeJob(config, shape.modules);
  job.set_split(split);
  for (const v1::LeftOut& left_out : inputs.left_out) {
    const bool is_of_split = std::any_of(
        sources.begin(), sources.end(), [&](const SampleOrder::Source& source) {
          return source.name == left_out.source();
        });
    if (is_of_split) *job.add_left_out() = left_out;
  }
  BALLAST_ASSIGN_OR_RETURN(ModelImages images,
                           ModelImages::Create(config.model(), inputs.recipe));
  const auto make_order = [&](const std::vector<SampleOrder::Change>& changes) {
    return SampleOrder(sources, changes,
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
        filled, FindFilledSteps(config, {make_order, numbers, indexes, images},
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
    BALLAST_ASSIGN_OR_RETURN(const uint64_t end_step,
                             EndStep(config, split, steps, order));
    job.set_end_step(end_step);
    BALLAST_ASSIGN_OR_RETURN(const uint64_t an_epoch,
                             steps.CountEnded(order.GetEnd(1)));
    job.set_steps_per_epoch(an_epoch);
    if (split != v1::SPLIT_TRAIN) {
      BALLAST_ASSIGN_OR_RETURN(
          *job.mutable_one_pass(),
          MakePass(order, numbers, config.sources_size(), steps));
    }
  }
  if (is_filled && inputs.save_starts != nullptr) {
    filled.steps->SaveFound(
        [save = inputs.save_starts, name](const std::vector<uint64_t>& starts) {
          save(name, starts);
        },
        loaded.size());
  }
  return std::make_unique<ConfiguredScheduler>(
      config, indexes, std::move(numbers), std::move(order), std::move(steps),
      std::move(plan), std::move(shape), packs, std::move(fingerprint),
      std::move(job), std::move(images));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(
    const v1::Config& given, const std::vector<const SourceIndex*>& indexes,
    const SchedulerInputs& inputs) {
  v1::Config config = given;
  BALLAST_RETURN_IF_ERROR(ResolveVideos(indexes, &config));
  BALLAST_RETURN_IF_ERROR(CheckAudio(indexes, config));
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
