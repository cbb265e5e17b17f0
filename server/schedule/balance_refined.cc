#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "server/schedule/balance.h"
#include "server/schedule/balance_input.h"
#include "server/schedule/cost_order.h"
#include "server/schedule/fixed_point.h"
#include "server/schedule/swap_search.h"

namespace ballast {
namespace {

struct GroupLoad {
  int64_t load;
  uint32_t members;
  uint32_t group;

  bool operator<(const GroupLoad& other) const {
    if (load != other.load) return load < other.load;
    if (members != other.members) return members < other.members;
    return group < other.group;
  }
};

// Replaces the least entry of a heap: one way down, where a pop and a push go
// down and up again.
void ReplaceTop(const GroupLoad& with, std::vector<GroupLoad>* heap) {
  const size_t size = heap->size();
  size_t at = 0;
  for (size_t child = 1; child < size; child = 2 * at + 1) {
    if (child + 1 < size && (*heap)[child + 1] < (*heap)[child]) ++child;
    if (!((*heap)[child] < with)) break;
    (*heap)[at] = (*heap)[child];
    at = child;
  }
  (*heap)[at] = with;
}

// Longest processing time first without a cap on a group's count. Among equal
// loads the group with fewer members goes first, so that samples of cost 0
// spread out and no group stays empty if there are enough samples.
Groups UncappedLpt(const std::vector<int64_t>& costs, uint32_t groups) {
  // Every group gets about as many.
  Groups result(groups);
  for (auto& group : result) group.reserve(costs.size() / groups + 2);
  std::vector<GroupLoad> by_load;  // a heap, the least on top
  by_load.reserve(groups);
  for (uint32_t g = 0; g < groups; ++g) by_load.push_back({0, 0, g});
  for (const uint32_t i : CostliestFirst(costs)) {
    const auto [load, members, group] = by_load.front();
    ReplaceTop({load + costs[i], members + 1, group}, &by_load);
    result[group].push_back(i);
  }
  return result;
}

int64_t LargestLoad(const std::vector<int64_t>& costs, const Groups& groups) {
  int64_t largest = 0;
  for (const std::vector<uint32_t>& group : groups) {
    int64_t load = 0;
    for (const uint32_t i : group) load += costs[i];
    largest = std::max(largest, load);
  }
  return largest;
}

}  // namespace

absl::StatusOr<Groups> BalanceRefined(absl::Span<const double> costs,
                                      uint32_t groups, bool equal_count) {
  BALLAST_RETURN_IF_ERROR(CheckBalanceInput(costs, groups, equal_count));
  const std::vector<int64_t> fixed =
      FixedPoint(costs, std::accumulate(costs.begin(), costs.end(), 0.0));
  // Starts from the better of the two partitions; the search only improves it.
  Groups start;
  if (costs.size() % groups == 0) {
    BALLAST_ASSIGN_OR_RETURN(start, BalanceLpt(costs, groups));
  }
  if (!equal_count) {
    Groups uncapped = UncappedLpt(fixed, groups);
    if (start.empty() ||
        LargestLoad(fixed, uncapped) < LargestLoad(fixed, start)) {
      start = std::move(uncapped);
    }
  }
  return ImproveBySwaps(fixed, std::move(start), equal_count);
}

absl::StatusOr<Groups> BalanceQuickly(absl::Span<const double> costs,
                                      uint32_t groups, bool equal_count) {
  BALLAST_RETURN_IF_ERROR(CheckBalanceInput(costs, groups, equal_count));
  const std::vector<int64_t> fixed =
      FixedPoint(costs, std::accumulate(costs.begin(), costs.end(), 0.0));
  Groups start;
  if (equal_count) {
    BALLAST_ASSIGN_OR_RETURN(start, BalanceLpt(costs, groups));
  } else {
    start = UncappedLpt(fixed, groups);
  }
  int64_t bound =
      std::accumulate(fixed.begin(), fixed.end(), int64_t{0}) / groups;
  for (const int64_t cost : fixed) bound = std::max(bound, cost);
  return ImproveBySwaps(fixed, std::move(start), equal_count,
                        bound + (bound >> 10));
}

}  // namespace ballast
