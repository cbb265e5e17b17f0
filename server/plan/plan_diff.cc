#include "server/plan/plan_diff.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "proto/schedule/fingerprint.h"

namespace ballast {

std::vector<PlanDifference> ComparePlans(const v1::Fingerprint& a,
                                         const v1::Fingerprint& b) {
  std::map<std::string, PlanDifference> all;
  const auto add = [&](const v1::Fingerprint& from,
                       std::optional<std::string> PlanDifference::*value) {
    for (const v1::Fingerprint::Entry& entry : from.entries()) {
      PlanDifference& found = all[entry.key()];
      found.key = entry.key();
      found.*value = entry.value();
    }
  };
  add(a, &PlanDifference::old_value);
  add(b, &PlanDifference::new_value);
  std::vector<PlanDifference> differences;
  for (auto& [key, each] : all) {
    if (each.old_value == each.new_value) continue;
    each.is_data = IsDataKey(key);
    const std::optional<uint64_t> step = StepOfKey(key);
    if (step.has_value()) {
      each.from_step = *step;
      each.key = key.substr(FromStepKey(*step, "").size());
    }
    differences.push_back(std::move(each));
  }
  std::stable_sort(differences.begin(), differences.end(),
                   [](const PlanDifference& x, const PlanDifference& y) {
                     return std::make_tuple(!x.is_data, x.from_step) <
                            std::make_tuple(!y.is_data, y.from_step);
                   });
  return differences;
}

}  // namespace ballast
