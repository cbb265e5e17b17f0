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

// `key` is the section's key. `delivery` is not `off`.
void ValidateCost(const v1::Balance::Cost& cost, absl::string_view key,
                  KeyReport* report) {
  if (report->HasFaultWithin(key)) return;
  for (const ModuleKind& kind : kModuleKinds) {
    const v1::Balance::Coefficients& of = GetCoefficients(cost, kind.module);
    if (of.linear() != 0 || of.quadratic() != 0) return;
  }
  report->AddFault(key,
                   "found only zeros, which make all plans equal; wanted one "
                   "coefficient above 0, or delivery: off");
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

void ValidateComparison(const v1::Serve& serve, KeyReport* report) {
  constexpr int kMost = 8;
  const std::string list = "serve.compare_with";
  if (report->IsFaulty(list)) return;
  if (serve.compare_with_size() > kMost) {
    return report->AddFault(list,
                            absl::StrCat("found ", serve.compare_with_size(),
                                         " addresses; wanted at most ", kMost));
  }
  for (int i = 0; i < serve.compare_with_size(); ++i) {
    const std::string key = ItemKey(list, i);
    if (report->IsFaulty(key)) continue;
    const absl::Status valid =
        ParseConfiguredAddress(serve.compare_with(i)).status();
    if (!valid.ok()) report->AddFault(key, std::string(valid.message()));
  }
}

void ValidateServe(const v1::Config& config, KeyReport* report) {
  ValidateComparison(config.serve(), report);
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
  ValidateOrder(config, report);
  ValidateBalance(config.balance(), report);
  ValidatePlacement(config, report);
  ValidatePacking(config, report);
  ValidateServe(config, report);
  ValidateSecurity(config, report);
  ValidateStorage(config, report);
}

}  // namespace ballast
