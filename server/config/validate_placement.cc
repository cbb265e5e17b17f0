#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/schedule/module.h"
#include "server/config/config_validate.h"
#include "server/config/image_family_config.h"
#include "server/config/topology.h"
#include "server/image_plan/image_family.h"

namespace ballast {
namespace {

constexpr char kKey[] = "balance.placement";

// Refuses modules that do not run on the same ranks.
void CheckRanks(const v1::Config& config, KeyReport* report) {
  const uint32_t ranks = DpSize(config, v1::MODULE_LANGUAGE);
  std::string sizes;
  int encoders = 0;
  bool equal = true;
  for (const v1::Module module : Modules(config)) {
    const uint32_t dp = DpSize(config, module);
    absl::StrAppend(&sizes, ModuleName(module), " dp ", dp, ", ");
    encoders += IsEncoder(module);
    equal &= dp == ranks;
  }
  if (encoders > 0 && equal && config.topology().colocated()) return;
  report->AddFault(
      kKey, absl::StrCat("found split with ", sizes, "colocated: ",
                         config.topology().colocated() ? "true" : "false",
                         "; wanted one dp and colocated: true, since "
                         "embeddings move among ranks that run both modules, "
                         "or paired"));
}

// Refuses towers whose output is not whole on the process of the language
// model's first stage.
void CheckTower(const std::string& name, const v1::Topology::Module& encoder,
                KeyReport* report) {
  if (encoder.sequence_parallel() && encoder.tp() > 1) {
    report->AddFault(
        kKey,
        absl::StrCat(
            "found split with topology.modules.", name,
            ".sequence_parallel: true; wanted false, since each tensor rank of "
            "such a tower ends with a part of every image's embeddings, and "
            "whole images move: gather the tower's output before it, or "
            "paired"));
  }
  if (encoder.pp() > 1) {
    report->AddFault(
        kKey, absl::StrCat("found split with topology.modules.", name, ".pp ",
                           encoder.pp(),
                           "; wanted 1, since embeddings move where the "
                           "tower and language's first stage share a process, "
                           "or paired"));
  }
}

// Refuses families whose towers' output is not one embedding for each merged
// patch.
void CheckEmbeddings(const v1::Model& model, KeyReport* report) {
  if (!model.has_image_family()) return;
  const ImageFamily family = FamilyOfConfig(model.image_family());
  const ImageMarks& marks = family.marks;
  const bool has_others =
      family.rule == ImageRule::kPinpoints ||
      (family.tokens_a_row != 0 && marks.row_end.empty()) ||
      (family.tokens_an_image != 0 && marks.before.empty() &&
       marks.after.empty());
  if (!has_others) return;
  report->AddFault(
      kKey, absl::StrCat("found split with the family ", family.name,
                         ", whose placeholders also stand for newlines; wanted "
                         "paired, or a family with one for each merged patch"));
}

}  // namespace

void ValidatePlacement(const v1::Config& config, KeyReport* report) {
  const v1::Balance& balance = config.balance();
  if (balance.placement() != v1::Balance::PLACEMENT_SPLIT ||
      report->IsFaulty(kKey) || report->HasFaultWithin("topology")) {
    return;
  }
  CheckRanks(config, report);
  CheckEmbeddings(config.model(), report);
  for (const v1::Module module : Modules(config)) {
    if (!IsEncoder(module)) continue;
    const std::string name(ModuleName(module));
    CheckTower(name, config.topology().modules().at(name), report);
  }
  if (balance.algorithm() == v1::Balance::ALGORITHM_LPT &&
      !report->IsFaulty("balance.algorithm")) {
    report->AddFault(kKey,
                     "found split with algorithm lpt, which balances the sum "
                     "of both modules; wanted paired, or algorithm: refined");
  }
  const v1::Balance::Coefficients& language =
      GetCoefficients(balance.cost(), v1::MODULE_LANGUAGE);
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
