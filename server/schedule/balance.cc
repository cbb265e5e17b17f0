#include "server/schedule/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

std::vector<double> GroupLoads(absl::Span<const double> costs,
                               const Groups& groups) {
  std::vector<double> loads;
  for (const std::vector<uint32_t>& group : groups) {
    double load = 0;
    for (const uint32_t i : group) load += costs[i];
    loads.push_back(load);
  }
  return loads;
}

double LoadLowerBound(absl::Span<const double> costs, uint32_t groups) {
  if (costs.empty()) return 0;
  const double sum = std::accumulate(costs.begin(), costs.end(), 0.0);
  return std::max(sum / groups, *std::max_element(costs.begin(), costs.end()));
}

absl::StatusOr<Groups> BalanceSamples(absl::Span<const double> costs,
                                      uint32_t groups,
                                      v1::Balance::Algorithm algorithm,
                                      bool equal_count) {
  switch (algorithm) {
    case v1::Balance::ALGORITHM_LPT:
      return BalanceLpt(costs, groups);
    case v1::Balance::ALGORITHM_REFINED:
      return BalanceRefined(costs, groups, equal_count);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("balance.algorithm is number ",
                       static_cast<int>(algorithm), "; wanted lpt or refined"));
  }
}

}  // namespace ballast
