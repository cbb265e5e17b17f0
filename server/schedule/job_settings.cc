#include "server/schedule/job_settings.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "proto/block/block_plan.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "server/config/topology.h"
#include "server/model/model_profile.h"
#include "server/model/model_rows.h"
#include "server/model/profiles.h"
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
  if (const RowsRule* rows = GetRowsRule(config.model())) {
    shape.geometry.clip_width = rows->shape().width();
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
  if (const RowsRule* rows = GetRowsRule(config.model())) {
    *job.mutable_clip_shape() = rows->shape();
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

void SetLargest(uint64_t samples, v1::Job* job) {
  job->set_global_batch(AlignUp(samples, job->micro_batch()));
}

}  // namespace ballast
