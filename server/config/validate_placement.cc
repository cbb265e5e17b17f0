#include "absl/strings/str_cat.h"
#include "server/config/config_validate.h"
#include "server/config/topology.h"

namespace ballast {
namespace {

constexpr char kKey[] = "balance.placement";

// Refuses modules that do not run on the same ranks.
void CheckRanks(const v1::Config& config, KeyReport* report) {
  const uint32_t vision = DpSize(config, v1::MODULE_VISION);
  const uint32_t language = DpSize(config, v1::MODULE_LANGUAGE);
  if (vision == language && config.topology().colocated()) return;
  report->AddFault(
      kKey, absl::StrCat("found split with vision dp ", vision,
                         ", language dp ", language, ", colocated: ",
                         config.topology().colocated() ? "true" : "false",
                         "; wanted one dp and colocated: true, since "
                         "embeddings move among ranks that run both modules, "
                         "or paired"));
}

// Refuses towers whose output is not whole on the process of the language
// model's first stage.
void CheckTower(const v1::Topology::Module& vision, KeyReport* report) {
  if (vision.sequence_parallel() && vision.tp() > 1) {
    report->AddFault(
        kKey,
        "found split with topology.modules.vision.sequence_parallel: true; "
        "wanted false, since each tensor rank of such a tower ends with a part "
        "of every image's embeddings, and whole images move: gather the "
        "tower's output before it, or paired");
  }
  if (vision.pp() > 1) {
    report->AddFault(
        kKey, absl::StrCat("found split with topology.modules.vision.pp ",
                           vision.pp(),
                           "; wanted 1, since embeddings move where the "
                           "tower and language's first stage share a process, "
                           "or paired"));
  }
}

}  // namespace

void ValidatePlacement(const v1::Config& config, KeyReport* report) {
  const v1::Balance& balance = config.balance();
  if (balance.placement() != v1::Balance::PLACEMENT_SPLIT ||
      report->IsFaulty(kKey) || report->HasFaultWithin("topology")) {
    return;
  }
  CheckRanks(config, report);
  const auto vision = config.topology().modules().find("vision");
  if (vision != config.topology().modules().end()) {
    CheckTower(vision->second, report);
  }
  if (balance.algorithm() == v1::Balance::ALGORITHM_LPT &&
      !report->IsFaulty("balance.algorithm")) {
    report->AddFault(kKey,
                     "found split with algorithm lpt, which balances the sum "
                     "of both modules; wanted paired, or algorithm: refined");
  }
  const v1::Balance::Coefficients& language = balance.cost().language();
  if (config.packing().mode() == v1::Packing::MODE_SHARD &&
      balance.delivery() != v1::DELIVERY_OFF && language.linear() == 0 &&
      language.quadratic() == 0 && !report->HasFaultWithin("balance.cost")) {
    report->AddFault(kKey,
                     "found split with balance.cost.language 0, which leaves "
                     "language as read; wanted a cost of both modules, for "
                     "example cost: {model: DIR}, or paired");
  }
}

}  // namespace ballast
