#include "server/config/cost_resolution.h"

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "server/config/model_cost.h"
#include "server/config/topology.h"

namespace ballast {
namespace {

// A real config.json has a few KB.
constexpr size_t kMaxModelConfig = size_t{1} << 20;

absl::StatusOr<v1::Balance::Cost> ReadModelCost(const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(const std::string text,
                           ReadSmallFile(path, kMaxModelConfig));
  const absl::StatusOr<v1::Balance::Cost> cost = ModelCost(text);
  if (!cost.ok()) return Annotate(cost.status(), path);
  return cost;
}

// Sets the coefficients that the file does not give. `key` is the section's
// key.
void FillIn(const KeyReport& report, const std::string& key,
            const v1::Balance::Coefficients& computed,
            v1::Balance::Coefficients* out) {
  if (!report.Has(ChildKey(key, "linear"))) out->set_linear(computed.linear());
  if (!report.Has(ChildKey(key, "quadratic"))) {
    out->set_quadratic(computed.quadratic());
  }
}

// `key` is the key of `cost`.
void Resolve(const std::string& key, v1::Balance::Cost* cost,
             KeyReport* report) {
  if (cost->model().empty()) return;
  const absl::StatusOr<v1::Balance::Cost> computed =
      ReadModelCost(absl::StrCat(cost->model(), "/config.json"));
  cost->clear_model();
  if (!computed.ok()) {
    return report->AddFault(
        ChildKey(key, "model"),
        absl::StrCat(std::string(computed.status().message()),
                     "; wanted the directory of a Hugging Face model"));
  }
  for (const ModuleKind& kind : kModuleKinds) {
    FillIn(*report, ChildKey(key, kind.name),
           GetCoefficients(*computed, kind.module),
           MutableCoefficients(cost, kind.module));
  }
}

}  // namespace

void ResolveModelCosts(v1::Balance* balance, KeyReport* report) {
  Resolve("balance.cost", balance->mutable_cost(), report);
  for (int i = 0; i < balance->cost_changes_size(); ++i) {
    Resolve(ChildKey(ItemKey("balance.cost_changes", i), "cost"),
            balance->mutable_cost_changes(i)->mutable_cost(), report);
  }
}

}  // namespace ballast
