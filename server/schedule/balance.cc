#include "server/schedule/balance.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/schedule/cost_model.h"

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

absl::Status CheckBalanceInput(absl::Span<const double> costs, uint32_t groups,
                               bool equal_count) {
  if (groups == 0) {
    return absl::InvalidArgumentError("groups is 0; wanted at least 1");
  }
  if (equal_count && costs.size() % groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(costs.size(), " costs do not divide into ", groups,
                     " groups of equal count"));
  }
  for (size_t i = 0; i < costs.size(); ++i) {
    if (!std::isfinite(costs[i]) || costs[i] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("cost ", i, " is ", costs[i],
                       "; wanted a finite number of 0 or more"));
    }
  }
  return absl::OkStatus();
}

namespace {

constexpr uint64_t kMaxEvaluated = 4'000'000;
// Number of lightest groups that are tried as partners of a heaviest one.
constexpr int kMaxPartners = 64;

using Loads = std::set<std::pair<int64_t, uint32_t>>;  // load, group

// Moves a sample from group `from` to group `to`, and one back unless `take` is
// absent.
struct Swap {
  uint32_t from, to;
  size_t give;
  std::optional<size_t> take;
};

class Search {
 public:
  // costs[m][i]: the cost of sample i for module m.
  Search(std::vector<std::vector<int64_t>> costs, Groups groups,
         bool keep_counts)
      : costs_(std::move(costs)),
        groups_(std::move(groups)),
        keep_counts_(keep_counts),
        loads_(costs_.size()),
        sorted_(costs_.size()),
        beside_(costs_.size()) {
    for (size_t m = 0; m < modules(); ++m) {
      loads_[m].resize(groups_.size(), 0);
      for (uint32_t g = 0; g < groups_.size(); ++g) {
        for (const uint32_t i : groups_[g]) loads_[m][g] += costs_[m][i];
        sorted_[m].emplace(loads_[m][g], g);
      }
    }
  }

  void Improve() {
    while (evaluated_ < kMaxEvaluated && ImproveOnce()) {
    }
  }

  Groups TakeGroups() {
    for (auto& group : groups_) std::sort(group.begin(), group.end());
    return std::move(groups_);
  }

 private:
  size_t modules() const { return costs_.size(); }
  int64_t Largest(size_t m) const { return sorted_[m].rbegin()->first; }

  // The largest load of module m over all groups except a and b.
  int64_t LargestBeside(size_t m, uint32_t a, uint32_t b) const {
    for (auto it = sorted_[m].rbegin(); it != sorted_[m].rend(); ++it) {
      if (it->second != a && it->second != b) return it->first;
    }
    return 0;
  }

  bool ImproveOnce() {
    std::optional<Swap> best;
    int64_t best_sum = 0;
    for (size_t m = 0; m < modules(); ++m) best_sum += Largest(m);
    for (size_t m = 0; m < modules(); ++m) {
      const uint32_t heavy = sorted_[m].rbegin()->second;
      // Groups that are light in any module are candidates to take from it.
      for (const Loads& by_load : sorted_) {
        int tried = 0;
        for (const auto& [load, partner] : by_load) {
          if (tried++ == kMaxPartners) break;
          if (partner != heavy) Evaluate(heavy, partner, &best, &best_sum);
        }
      }
    }
    if (!best) return false;
    Apply(*best);
    return true;
  }

  void Evaluate(uint32_t from, uint32_t to, std::optional<Swap>* best,
                int64_t* best_sum) {
    for (size_t m = 0; m < modules(); ++m) {
      beside_[m] = LargestBeside(m, from, to);
    }
    const auto evaluate = [&](size_t give, std::optional<size_t> take) {
      ++evaluated_;
      int64_t sum = 0;
      for (size_t m = 0; m < modules(); ++m) {
        const int64_t amount = Amount(m, from, to, give, take);
        sum += std::max(
            {beside_[m], loads_[m][from] - amount, loads_[m][to] + amount});
      }
      if (sum < *best_sum) {
        *best_sum = sum;
        *best = Swap{from, to, give, take};
      }
    };
    for (size_t give = 0; give < groups_[from].size(); ++give) {
      if (!keep_counts_ && groups_[from].size() > 1)
        evaluate(give, std::nullopt);
      for (size_t take = 0; take < groups_[to].size(); ++take)
        evaluate(give, take);
    }
  }

  int64_t Amount(size_t m, uint32_t from, uint32_t to, size_t give,
                 std::optional<size_t> take) const {
    return costs_[m][groups_[from][give]] -
           (take ? costs_[m][groups_[to][*take]] : 0);
  }

  void Apply(const Swap& swap) {
    const auto [from, to, give, take] = swap;
    for (size_t m = 0; m < modules(); ++m) {
      const int64_t amount = Amount(m, from, to, give, take);
      sorted_[m].erase({loads_[m][from], from});
      sorted_[m].erase({loads_[m][to], to});
      sorted_[m].emplace(loads_[m][from] -= amount, from);
      sorted_[m].emplace(loads_[m][to] += amount, to);
    }
    if (take) {
      std::swap(groups_[from][give], groups_[to][*take]);
      return;
    }
    groups_[to].push_back(groups_[from][give]);
    groups_[from].erase(groups_[from].begin() + give);
  }

  const std::vector<std::vector<int64_t>> costs_;
  Groups groups_;
  const bool keep_counts_;
  std::vector<std::vector<int64_t>> loads_;  // of each module, of each group
  std::vector<Loads> sorted_;
  std::vector<int64_t> beside_;  // of Evaluate
  uint64_t evaluated_ = 0;
};

}  // namespace

double JointLoad(const std::vector<std::vector<double>>& costs,
                 const Groups& groups) {
  double sum = 0;
  for (const std::vector<double>& of_module : costs) {
    const std::vector<double> loads = GroupLoads(of_module, groups);
    if (!loads.empty()) sum += *std::max_element(loads.begin(), loads.end());
  }
  return sum;
}

absl::StatusOr<Groups> BalanceJoint(
    const std::vector<std::vector<double>>& costs, uint32_t groups,
    bool equal_count) {
  if (costs.empty()) {
    return absl::InvalidArgumentError("no module; wanted at least one");
  }
  std::vector<double> sums(costs[0].size(), 0);
  for (const std::vector<double>& of_module : costs) {
    if (of_module.size() != sums.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("modules have ", sums.size(), " and ", of_module.size(),
                       " costs; wanted one of each for every sample"));
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += of_module[i];
  }
  BALLAST_ASSIGN_OR_RETURN(Groups start,
                           BalanceRefined(sums, groups, equal_count));
  if (sums.size() % groups == 0) {
    BALLAST_ASSIGN_OR_RETURN(Groups lpt, BalanceLpt(sums, groups));
    if (JointLoad(costs, lpt) < JointLoad(costs, start)) {
      start = std::move(lpt);
    }
  }
  const double bound = std::accumulate(sums.begin(), sums.end(), 0.0);
  std::vector<std::vector<int64_t>> fixed;
  for (const std::vector<double>& of_module : costs) {
    fixed.push_back(FixedPoint(of_module, bound));
  }
  Search search(std::move(fixed), std::move(start), equal_count);
  search.Improve();
  return search.TakeGroups();
}

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

  // Groups with room, by (load, number); the least is on top.
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

// Replaces the least entry of a heap in one pass down. A pop and a push would
// pass down and up again.
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
  // Every group gets about the same number.
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
