#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/schedule/balance.h"
#include "server/schedule/balance_input.h"

namespace ballast {

absl::StatusOr<Groups> BalanceLpt(absl::Span<const double> costs,
                                  uint32_t groups) {
  if (absl::Status status = CheckBalanceInput(costs, groups, true);
      !status.ok()) {
    return status;
  }
  const size_t cap = costs.size() / groups;
  std::vector<uint32_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return costs[a] > costs[b]; });

  // Groups with room; the least (load, number) is on top.
  using OpenGroup = std::pair<double, uint32_t>;
  std::priority_queue<OpenGroup, std::vector<OpenGroup>,
                      std::greater<OpenGroup>>
      open;
  for (uint32_t g = 0; g < groups; ++g) open.emplace(0.0, g);
  Groups result(groups);
  for (auto& group : result) group.reserve(cap);
  for (const uint32_t i : order) {
    const auto [load, group] = open.top();
    open.pop();
    result[group].push_back(i);
    if (result[group].size() < cap) open.emplace(load + costs[i], group);
  }
  return result;
}

}  // namespace ballast
