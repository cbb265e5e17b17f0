#include "server/config/config_validate.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/net_address.h"
#include "proto/schedule/module.h"
#include "server/config/exposure.h"
#include "server/config/topology.h"

namespace ballast {
namespace {

// "vision dp 4, language dp 2"
std::string DescribeGrid(const v1::Config& config) {
  std::string text;
  for (const v1::Module module : Modules(config)) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", ModuleName(module), " dp ",
                    DpSize(config, module));
  }
  return text;
}

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
}

// `key` is the section's key. `delivery` is not `off`.
void ValidateCost(const v1::Balance::Cost& cost, absl::string_view key,
                  KeyReport* report) {
  if (report->HasFaultWithin(key)) return;
  if (cost.vision().linear() == 0 && cost.vision().quadratic() == 0 &&
      cost.language().linear() == 0 && cost.language().quadratic() == 0) {
    report->AddFault(key,
                     "found only zeros, which make all plans equal; wanted one "
                     "coefficient above 0, or delivery: off");
  }
}

void ValidateCostChanges(const v1::Balance& balance, KeyReport* report) {
  uint64_t before = 0;
  for (int i = 0; i < balance.cost_changes_size(); ++i) {
    const std::string item = ItemKey("balance.cost_changes", i);
    if (report->IsFaulty(item)) continue;
    if (!report->Has(ChildKey(item, "cost"))) {
      report->AddMissing(ChildKey(item, "cost"), "a section as balance.cost");
    }
    const std::string key = ChildKey(item, "step");
    if (!report->Has(key)) {
      report->AddMissing(key, "the first step that uses the cost");
    }
    if (report->IsFaulty(key)) continue;
    const uint64_t step = balance.cost_changes(i).step();
    if (step <= before) {
      report->AddFault(key, absl::StrCat("found ", step,
                                         "; wanted a step after that of the "
                                         "preceding entry, ",
                                         before));
      continue;
    }
    before = step;
  }
}

void ValidateBalance(const v1::Balance& balance, KeyReport* report) {
  if (balance.scope() == v1::Balance::SCOPE_MICRO_BATCH &&
      balance.window() > 1 && !report->IsFaulty("balance.scope") &&
      !report->IsFaulty("balance.window")) {
    report->AddFault(
        "balance.window",
        absl::StrCat("found ", balance.window(),
                     " with scope micro_batch; wanted 1, or scope: window"));
  }
  if (report->Has("balance.objective") &&
      balance.objective() == v1::Balance::OBJECTIVE_PHASES &&
      balance.algorithm() == v1::Balance::ALGORITHM_LPT &&
      !report->IsFaulty("balance.objective")) {
    report->AddFault(
        "balance.objective",
        "found phases with algorithm lpt; wanted sum, or algorithm: refined");
  }
  if (!report->IsFaulty("balance.cost_changes")) {
    ValidateCostChanges(balance, report);
  }
  if (report->IsFaulty("balance.delivery") ||
      balance.delivery() == v1::DELIVERY_OFF) {
    return;
  }
  ValidateCost(balance.cost(), "balance.cost", report);
  for (int i = 0; i < balance.cost_changes_size(); ++i) {
    ValidateCost(balance.cost_changes(i).cost(),
                 ChildKey(ItemKey("balance.cost_changes", i), "cost"), report);
  }
}

void ValidateServe(const v1::Config& config, KeyReport* report) {
  for (int i = 0; i < config.serve().listen_size(); ++i) {
    const std::string key = ItemKey("serve.listen", i);
    if (report->IsFaulty(key)) continue;
    const std::string& text = config.serve().listen(i);
    const auto address = ParseConfiguredAddress(text);
    const absl::Status allowed =
        address.ok() ? CheckExposure(*address, text, config.security())
                     : address.status();
    if (!allowed.ok()) {
      report->AddFault(key, std::string(allowed.message()));
    }
  }
  if (!report->Has("serve.http") || report->IsFaulty("serve.http")) return;
  const std::string& http = config.serve().http();
  const auto address = ParseConfiguredAddress(http);
  const absl::Status allowed =
      address.ok() ? CheckHttpExposure(*address, http, config.security())
                   : address.status();
  if (!allowed.ok()) {
    report->AddFault("serve.http", std::string(allowed.message()));
  }
}

bool IsJobName(absl::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
  });
}

void ValidateSecurity(const v1::Config& config, KeyReport* report) {
  const v1::Security& security = config.security();
  if (!report->IsFaulty("security.job") && !IsJobName(security.job())) {
    report->AddFault(
        "security.job",
        absl::StrCat("found ", Shown(security.job()),
                     "; wanted letters, digits, _, . and - alone"));
  }
  if (!report->Has("security.tls") || report->IsFaulty("security.tls")) return;
  for (const char* member : {"cert", "key"}) {
    const std::string key = ChildKey("security.tls", member);
    if (!report->Has(key)) report->AddMissing(key, "a PEM file");
  }
  int tcp = 0;
  for (const v1::Topology::Server& server : config.topology().servers()) {
    tcp += UnixPath(server.address()).empty();
  }
  if (tcp > 1 && security.tls().client_ca().empty() &&
      !report->Has("security.tls.ca")) {
    report->AddMissing("security.tls.ca",
                       "a PEM file of the CAs of the job's other servers, or "
                       "client_ca");
  }
}

}  // namespace

void ValidateConfig(const v1::Config& config, KeyReport* report) {
  // Broken YAML or not a map: nothing was read.
  if (report->IsFaulty("")) return;
  ValidateSources(config, report);
  ValidateModel(config.model(), report);
  ValidateTopology(config, report);
  ValidateBatch(config, report);
  ValidateBalance(config.balance(), report);
  ValidatePlacement(config, report);
  ValidatePacking(config, report);
  ValidateServe(config, report);
  ValidateSecurity(config, report);
}

}  // namespace ballast
