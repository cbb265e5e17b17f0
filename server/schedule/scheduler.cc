#include "server/schedule/scheduler.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "proto/block/block_plan.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "server/config/model_images.h"
#include "server/config/model_profile.h"
#include "server/config/source_fields.h"
#include "server/config/topology.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/micro_batch_schedule.h"
#include "server/schedule/ownership.h"
#include "server/schedule/pipeline_order.h"
#include "server/schedule/placement_figures.h"
#include "server/schedule/sample_order.h"
#include "server/schedule/schedule_fingerprint.h"
#include "server/schedule/split_sources.h"
#include "server/schedule/step_plan.h"

namespace ballast {

absl::StatusOr<v1::GetMixtureResponse> ReportMixture(const SampleOrder& order,
                                                     const v1::Job& job,
                                                     uint64_t step) {
  BALLAST_ASSIGN_OR_RETURN(const uint64_t position, FirstPosition(job, step));
  const size_t sources = order.sources().size();
  std::vector<SampleOrder::Drawn> all(sources), trained(sources);
  order.AddDrawn(0, position, &all);
  for (const PositionRange& range : PositionsBefore(job, step)) {
    order.AddDrawn(range.first, range.end, &trained);
  }
  v1::GetMixtureResponse mixture;
  mixture.set_step(step);
  mixture.set_samples(SamplesBefore(job, step));
  const std::vector<double> shares = order.SharesAt(position);
  for (size_t s = 0; s < sources; ++s) {
    v1::GetMixtureResponse::Source* source = mixture.add_sources();
    source->set_name(order.sources()[s].name);
    source->set_size(order.sources()[s].size);
    source->set_samples(trained[s].samples);
    source->set_skipped(all[s].samples - trained[s].samples);
    source->set_weight(shares[s]);
    if (mixture.samples() > 0) {
      source->set_wanted_share(trained[s].wanted / mixture.samples());
    }
  }
  return mixture;
}

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
  packs.capacity =
      uint64_t{config.packing().max_tokens_per_rank()} * language->cp();
  packs.align = PackAlign(config, v1::MODULE_LANGUAGE);
  packs.micro_batch_multiple = config.packing().virtual_pipeline_group();
  const uint64_t multiple =
      uint64_t{Grid(config.topology())} * packs.micro_batch_multiple;
  BALLAST_RETURN_IF_ERROR(
      CheckPackMultiple("batch.global", config.batch().global(), multiple));
  for (const v1::StepRange& range : job.step_ranges()) {
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
                      MicroBatchShape shape, std::optional<PackShape> packs,
                      v1::Fingerprint fingerprint, v1::Job job,
                      ModelImages images)
      : config_(config),
        indexes_(std::move(indexes)),
        sources_(std::move(sources)),
        order_(std::move(order)),
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
      uint64_t step) const override {
    return ReportMixture(order_, job_, step);
  }

  OrderedSample OrderedAt(uint64_t position) const override {
    const SampleOrder::Sample sample = SampleAt(position);
    return {sample.source, sample.ordinal, sample.epoch};
  }

  // Called while the scheduler is being created.
  void Own(std::unique_ptr<Scheduler> other) {
    others_.push_back(std::move(other));
  }

 private:
  const Scheduler* Find(v1::Split split) const override;
  // The sample at a position of this split.
  SampleOrder::Sample SampleAt(uint64_t position) const;
  // Micro-batches balanced together, in a step of `samples` samples.
  uint32_t WindowSize(uint32_t samples) const;
  // Appends the schedule of `count` samples, which are whole micro-batches, to
  // `schedule`.
  absl::Status AddWindow(const MicroBatchShape& shape, uint64_t first_position,
                         uint32_t count, v1::StepSchedule* schedule) const;
  SampleImages Images(const SampleOrder::Sample& sample,
                      const std::vector<TileShape>& sides) const {
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

SampleOrder::Sample ConfiguredScheduler::SampleAt(uint64_t position) const {
  SampleOrder::Sample sample = order_.At(position);
  sample.source = sources_[sample.source];
  return sample;
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
        "the data end before step ", job_.end_step(), " (order.epochs is ",
        config_.order().epochs(), "); step ", step, " was requested"));
  }
  BALLAST_ASSIGN_OR_RETURN(const uint64_t first_position,
                           FirstPosition(job_, step));
  const uint32_t samples = SamplesOfStep(job_, step);
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
  const uint32_t micro = config_.batch().micro();
  const uint32_t window = WindowSize(samples) * micro;
  for (uint32_t done = 0; done < samples; done += window) {
    BALLAST_RETURN_IF_ERROR(
        AddWindow(shape, first_position + done,
                  std::min<uint32_t>(window, samples - done), &schedule));
  }
  if (config_.balance().order() == v1::Balance::ORDER_PIPELINE) {
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

uint32_t ConfiguredScheduler::WindowSize(uint32_t samples) const {
  if (packs_) return samples / config_.batch().micro();
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
  std::vector<std::vector<TileShape>> sides;
  for (const ScheduledSample& each : samples) {
    BALLAST_ASSIGN_OR_RETURN(
        const IndexedSample indexed,
        indexes_[each.sample.source]->sample(each.sample.ordinal));
    sides.push_back(GetSides(indexed.images));
  }
  std::vector<SampleImages> images;
  for (size_t i = 0; i < samples.size(); ++i) {
    images.push_back(Images(samples[i].sample, sides[i]));
  }
  images_.PlanAhead(images);
  return absl::OkStatus();
}

absl::Status ConfiguredScheduler::Measure(ScheduledSample* scheduled) const {
  const SampleOrder::Sample& sample = scheduled->sample;
  const absl::Status status = [&]() -> absl::Status {
    BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                             indexes_[sample.source]->sample(sample.ordinal));
    const std::vector<TileShape> sides = GetSides(indexed.images);
    BALLAST_ASSIGN_OR_RETURN(
        scheduled->size,
        MeasureSample(indexed, Images(scheduled->sample, sides), images_));
    device_share_.Limit(sample.source, sample.ordinal,
                        &scheduled->size.encoded_bytes);
    return absl::OkStatus();
  }();
  if (status.ok()) return status;
  return Annotate(status,
                  absl::StrCat("sample ", config_.sources(sample.source).name(),
                               ":", sample.ordinal));
}

absl::Status ConfiguredScheduler::AddWindow(const MicroBatchShape& shape,
                                            uint64_t first_position,
                                            uint32_t count,
                                            v1::StepSchedule* schedule) const {
  std::vector<ScheduledSample> samples(count);
  for (uint32_t i = 0; i < count; ++i) {
    samples[i].position = first_position + i;
    samples[i].sample = SampleAt(first_position + i);
  }
  Prefetch(samples);
  BALLAST_RETURN_IF_ERROR(PlanAhead(samples));
  for (ScheduledSample& sample : samples) {
    BALLAST_RETURN_IF_ERROR(Measure(&sample));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<Ownership> owners,
                           packs_ ? AssignPackedOwners(samples, shape, *packs_)
                                  : AssignOwners(samples, shape));
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
  job.set_colocated(config.topology().colocated());
  job.set_virtual_pipeline_group(config.packing().virtual_pipeline_group());
  for (const v1::Split split : GetSplits(config)) job.add_splits(split);
  job.set_padded(config.packing().mode() == v1::Packing::MODE_PADDED);
  job.set_row_length(config.packing().row_length());
  job.set_placement(config.balance().placement());
  for (v1::Job::Field& field : GetJobFields(config)) {
    *job.add_fields() = std::move(field);
  }
  return job;
}

absl::StatusOr<std::unique_ptr<ConfiguredScheduler>> CreateOfSplit(
    const v1::Config& job_config,
    const std::vector<const SourceIndex*>& indexes, v1::Split split,
    const std::shared_ptr<const ImageRecipe>& recipe) {
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
  BALLAST_ASSIGN_OR_RETURN(StepPlan plan, PlanSteps(config, split));
  // One fingerprint covers the sizes of all splits.
  BALLAST_ASSIGN_OR_RETURN(const std::vector<BatchSize> sizes,
                           BatchSizes(job_config.batch()));
  v1::Job job = MakeJob(config, shape.modules);
  job.set_split(split);
  if (plan.steps.size() > 1 ||
      SamplesOfStep(job, 0) != plan.steps[0].samples()) {
    job.mutable_step_ranges()->Add(plan.steps.begin(), plan.steps.end());
  }
  BALLAST_ASSIGN_OR_RETURN(const std::optional<PackShape> packs,
                           MakePackShape(config, job));
  SampleOrder order(std::move(sources), plan.mixtures,
                    SeedOfSplit(config.order().seed(), split),
                    config.order().shuffle());
  BALLAST_ASSIGN_OR_RETURN(const uint64_t end_step,
                           EndStep(config, job, order));
  job.set_end_step(end_step);
  job.set_steps_per_epoch(StepsBefore(job, order.GetEnd(1)));
  BALLAST_ASSIGN_OR_RETURN(ModelImages images,
                           ModelImages::Create(config.model(), recipe));
  return std::make_unique<ConfiguredScheduler>(
      config, indexes, std::move(numbers), std::move(order), std::move(shape),
      packs, ScheduleFingerprint(job_config, indexes, split, sizes),
      std::move(job), std::move(images));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(
    const v1::Config& given, const std::vector<const SourceIndex*>& indexes,
    std::shared_ptr<const ImageRecipe> recipe) {
  v1::Config config = given;
  BALLAST_RETURN_IF_ERROR(ResolveVideos(indexes, &config));
  if (SourcesOfSplit(config, v1::SPLIT_TRAIN).empty()) {
    return absl::InvalidArgumentError(
        "sources: none has `split: train`; wanted at least one");
  }
  BALLAST_ASSIGN_OR_RETURN(
      std::unique_ptr<ConfiguredScheduler> train,
      CreateOfSplit(config, indexes, v1::SPLIT_TRAIN, recipe));
  for (const v1::Split split : GetSplits(config)) {
    if (split == v1::SPLIT_TRAIN) continue;
    BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> other,
                             CreateOfSplit(config, indexes, split, recipe));
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

absl::StatusOr<const Scheduler*> Scheduler::OfSplit(v1::Split split) const {
  BALLAST_RETURN_IF_ERROR(CheckSplit(job(), split));
  return Find(split);
}

}  // namespace ballast
