#include "server/schedule/pack_shape.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "server/config/topology.h"

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

}  // namespace ballast
