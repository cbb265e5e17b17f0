#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/align.h"
#include "proto/schedule/module.h"
#include "server/config/batch_sizes.h"
#include "server/config/config_validate.h"
#include "server/config/topology.h"

namespace ballast {
namespace {

// Checks the packing against the trainer's layout, whatever its mode.
void ValidatePackShape(const v1::Config& config,
                       const v1::Topology::Module& language,
                       KeyReport* report) {
  const v1::Packing& packing = config.packing();
  // `auto`, which is 0, always fits.
  const uint64_t pieces = uint64_t{2} * language.cp();
  if (language.cp() > 1 && !report->IsFaulty("packing.align") &&
      packing.align() % pieces != 0) {
    report->AddFault(
        "packing.align",
        absl::StrCat(
            "found ", packing.align(),
            "; wanted a multiple of twice language cp, ", pieces,
            ", the number of pieces that context parallelism cuts each "
            "sample into, or auto"));
  }
  const uint32_t group = packing.virtual_pipeline_group();
  if (packing.mode() == v1::Packing::MODE_SCHEDULED || group < 2 ||
      report->HasFaultWithin("packing") || report->HasFaultWithin("batch")) {
    return;
  }
  const auto sizes = BatchSizes(config.batch());
  if (!sizes.ok()) return;  // a fault of `batch`
  for (const BatchSize& size : *sizes) {
    const uint32_t micro_batches = size.samples / config.batch().micro();
    if (micro_batches % group == 0) continue;
    return report->AddFault(
        "packing.virtual_pipeline_group",
        absl::StrCat("found ", group, "; wanted one that divides the ",
                     micro_batches, " micro-batches of ",
                     size.first_step == 0
                         ? std::string("a step, batch.global / batch.micro")
                         : absl::StrCat("step ", size.first_step,
                                        " (batch.rampup, batch.changes)")));
  }
}

// Packs are filled by their lengths alone, so an objective that weighs encoders
// against language would have no effect.
void ValidateObjective(const v1::Config& config, KeyReport* report) {
  if (config.packing().mode() != v1::Packing::MODE_SCHEDULED ||
      config.balance().objective() != v1::Balance::OBJECTIVE_PHASES ||
      report->IsFaulty("packing.mode") ||
      report->IsFaulty("balance.objective")) {
    return;
  }
  report->AddFault(
      "balance.objective",
      "found phases with packing.mode scheduled, which fills packs by their "
      "numbers of tokens alone and does not balance vision; wanted sum, or "
      "packing.mode: shard");
}

// `longest`: the longest sample's padded length.
void ValidateScheduled(const v1::Packing& packing, uint32_t cp,
                       uint64_t longest, KeyReport* report) {
  const uint64_t room = uint64_t{packing.max_tokens_per_rank()} * cp;
  if (room >= longest) return;
  report->AddFault("packing.max_tokens_per_rank",
                   absl::StrCat("found ", packing.max_tokens_per_rank(),
                                ", times language cp ", cp, " a pack of ", room,
                                " tokens; wanted packs that hold a sample of "
                                "batch.max_tokens, ",
                                longest, " tokens when padded"));
}

void ValidatePadded(const v1::Config& config, uint64_t longest,
                    KeyReport* report) {
  const uint64_t row = config.packing().row_length();
  const uint64_t align = PackAlign(config, v1::MODULE_LANGUAGE);
  if (row != 0 && (row < longest || row % align != 0)) {
    report->AddFault(
        "packing.row_length",
        absl::StrCat("found ", row, "; wanted a multiple of packing.align, ",
                     align, ", that holds a sample of batch.max_tokens, ",
                     longest, " tokens when padded, or auto"));
  }
  if (!config.balance().equal_count() &&
      !report->IsFaulty("balance.equal_count")) {
    report->AddFault(
        "packing.mode",
        "found padded without balance.equal_count; wanted equal_count: true, "
        "since each sample is a row, and trainers want as many rows on every "
        "rank");
  }
}

}  // namespace

void ValidatePacking(const v1::Config& config, KeyReport* report) {
  const v1::Packing& packing = config.packing();
  if (report->IsFaulty("packing")) return;
  if (packing.row_length() != 0 && !report->IsFaulty("packing.mode") &&
      packing.mode() != v1::Packing::MODE_PADDED) {
    report->AddFault("packing.row_length",
                     absl::StrCat("found ", packing.row_length(),
                                  " without mode: padded; wanted it for that "
                                  "mode alone"));
  }
  ValidateObjective(config, report);
  const v1::Topology::Module* const language = FindLanguage(config);
  if (language == nullptr ||
      report->HasFaultWithin(
          absl::StrCat("topology.modules.", ModuleName(v1::MODULE_LANGUAGE)))) {
    return;
  }
  ValidatePackShape(config, *language, report);
  if (report->HasFaultWithin("packing") ||
      report->IsFaulty("batch.max_tokens")) {
    return;
  }
  const uint64_t longest = AlignUp(config.batch().max_tokens(),
                                   PackAlign(config, v1::MODULE_LANGUAGE));
  if (packing.mode() == v1::Packing::MODE_SCHEDULED) {
    ValidateScheduled(packing, language->cp(), longest, report);
  } else if (packing.mode() == v1::Packing::MODE_PADDED) {
    ValidatePadded(config, longest, report);
  }
}

}  // namespace ballast
