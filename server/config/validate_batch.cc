#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/schedule/module.h"
#include "server/config/batch_sizes.h"
#include "server/config/config_validate.h"
#include "server/config/topology.h"

namespace ballast {
namespace {

constexpr int kMaxChanges = 256;

// "vision dp 4, language dp 2"
std::string DescribeGrid(const v1::Config& config) {
  std::string text;
  for (const v1::Module module : Modules(config)) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", ModuleName(module), " dp ",
                    DpSize(config, module));
  }
  return text;
}

// Adds a fault unless the samples of some steps, `samples`, fill micro-batches.
void CheckMultiple(uint32_t samples, const v1::Batch& batch,
                   const std::string& key, KeyReport* report) {
  if (report->IsFaulty(key) || samples % batch.micro() == 0) return;
  report->AddFault(
      key, absl::StrCat("found ", samples,
                        "; wanted a multiple of batch.micro, ", batch.micro()));
}

void CheckRampup(const v1::Batch& batch, KeyReport* report) {
  for (const char* key : {"batch.rampup.start", "batch.rampup.increment",
                          "batch.rampup.samples"}) {
    if (!report->Has(key)) report->AddMissing(key, "a number of samples");
  }
  CheckMultiple(batch.rampup().start(), batch, "batch.rampup.start", report);
  CheckMultiple(batch.rampup().increment(), batch, "batch.rampup.increment",
                report);
  if (report->HasFaultWithin("batch.rampup")) return;
  v1::Batch alone = batch;
  alone.clear_changes();
  const auto sizes = BatchSizes(alone);
  if (!sizes.ok()) {
    report->AddFault("batch.rampup", std::string(sizes.status().message()));
  }
}

void CheckChanges(const v1::Batch& batch, KeyReport* report) {
  if (batch.changes_size() > kMaxChanges) {
    return report->AddFault(
        "batch.changes",
        absl::StrCat("found ", batch.changes_size(),
                     " entries; wanted at most ", kMaxChanges));
  }
  v1::Batch before = batch;
  before.clear_changes();
  for (int i = 0; i < batch.changes_size(); ++i) {
    const std::string item = ItemKey("batch.changes", i);
    if (report->IsFaulty(item)) continue;
    const bool by_step = report->Has(ChildKey(item, "step"));
    if (by_step == report->Has(ChildKey(item, "samples"))) {
      report->AddFault(item, by_step
                                 ? "found step and samples; wanted one of them"
                                 : "found neither step nor samples; wanted one "
                                   "of them");
    }
    const std::string global = ChildKey(item, "global");
    if (!report->Has(global)) {
      report->AddMissing(global, "the samples a step from there on");
    } else {
      CheckMultiple(batch.changes(i).global(), batch, global, report);
    }
    if (report->HasFaultWithin(item)) continue;
    *before.add_changes() = batch.changes(i);
    const auto sizes = BatchSizes(before);
    if (sizes.ok()) continue;
    report->AddFault(ChildKey(item, by_step ? "step" : "samples"),
                     std::string(sizes.status().message()));
    before.mutable_changes()->RemoveLast();
  }
}

}  // namespace

void ValidateBatch(const v1::Config& config, KeyReport* report) {
  if (!report->Has("batch")) {
    return report->AddMissing("batch", "a section with global and micro");
  }
  if (report->IsFaulty("batch")) return;
  for (const char* key : {"batch.global", "batch.micro"}) {
    if (!report->Has(key)) {
      report->AddMissing(key, "a number of samples");
    }
  }
  const v1::Batch& batch = config.batch();
  const bool has_micro = !report->IsFaulty("batch.micro");
  if (has_micro && !report->IsFaulty("batch.global") &&
      batch.global() % batch.micro() != 0) {
    report->AddFault(
        "batch.global",
        absl::StrCat("found ", batch.global(),
                     "; wanted a multiple of batch.micro, ", batch.micro()));
  }
  const uint32_t grid = Grid(config.topology());
  if (has_micro && !report->HasFaultWithin("topology.modules") &&
      batch.micro() % grid != 0) {
    report->AddFault("batch.micro",
                     absl::StrCat("found ", batch.micro(),
                                  "; wanted a multiple of the grid, ", grid,
                                  " (the LCM of ", DescribeGrid(config), ")"));
  }
  if (!has_micro || report->IsFaulty("batch.global")) return;
  if (report->Has("batch.rampup") && !report->IsFaulty("batch.rampup")) {
    CheckRampup(batch, report);
  }
  if (!report->HasFaultWithin("batch.rampup") &&
      !report->IsFaulty("batch.changes")) {
    CheckChanges(batch, report);
  }
}

}  // namespace ballast
