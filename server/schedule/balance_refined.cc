#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "common/status_macros.h"
#include "server/schedule/balance.h"
#include "server/schedule/balance_input.h"

namespace ballast {
namespace {

// Lightest groups that are tried first as partners of the heaviest one. All
// others are tried only when none of these helps.
constexpr int kFirstPartners = 16;
// Exchanges a group on average, after which the search stops.
constexpr uint64_t kMaxExchangesPerGroup = 64;

// Costs as integers: scaled by one power of two, so that sums stay below 2^62.
// Exact for costs that are integers, which patch and token counts are.
std::vector<int64_t> FixedPoint(absl::Span<const double> costs) {
  const double sum = std::accumulate(costs.begin(), costs.end(), 0.0);
  int exponent = 0;
  std::frexp(sum, &exponent);  // sum < 2^exponent
  const int shift = std::min(16, 60 - exponent);
  std::vector<int64_t> fixed;
  fixed.reserve(costs.size());
  for (const double cost : costs) {
    fixed.push_back(std::llround(std::ldexp(cost, shift)));
  }
  return fixed;
}

// One step of the search: `give` of the heavier group for `take` of the lighter
// one, or for nothing.
struct Exchange {
  size_t give;                 // index within the heavier group
  std::optional<size_t> take;  // index within the lighter group
  int64_t amount;              // cost that changes sides
};

// Descending cost; ties by index.
struct Heavier {
  const std::vector<int64_t>& costs;
  bool operator()(uint32_t a, uint32_t b) const {
    return std::make_pair(-costs[a], a) < std::make_pair(-costs[b], b);
  }
};

class Search {
 public:
  Search(std::vector<int64_t> costs, Groups groups, bool equal_count)
      : costs_(std::move(costs)),
        groups_(std::move(groups)),
        equal_count_(equal_count),
        loads_(groups_.size(), 0) {
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      // Descending cost, so that partners are found by bisection.
      std::sort(groups_[g].begin(), groups_[g].end(), Heavier{costs_});
      for (const uint32_t i : groups_[g]) loads_[g] += costs_[i];
      by_load_.emplace(loads_[g], g);
    }
  }

  // Lowers the largest load until no single exchange does.
  void Run() {
    uint64_t left = kMaxExchangesPerGroup * groups_.size();
    while (left > 0 && ImproveHeaviest()) --left;
  }

  int64_t largest_load() const { return by_load_.rbegin()->first; }

  Groups TakeGroups() {
    for (auto& group : groups_) std::sort(group.begin(), group.end());
    return std::move(groups_);
  }

 private:
  bool ImproveHeaviest() {
    const uint32_t heavy = by_load_.rbegin()->second;
    uint32_t best_partner = 0;
    std::optional<Exchange> best;
    int64_t best_load = loads_[heavy];
    int tried = 0;
    for (const auto& [load, partner] : by_load_) {
      if (partner == heavy) break;
      if (tried++ == kFirstPartners && best) break;
      // A partner cannot end below the middle of the two.
      if ((loads_[heavy] + load + 1) / 2 >= best_load) break;
      const std::optional<Exchange> found = BestExchange(heavy, partner);
      if (!found) continue;
      const int64_t larger =
          std::max(loads_[heavy] - found->amount, load + found->amount);
      if (larger < best_load) {
        best_load = larger;
        best_partner = partner;
        best = found;
      }
    }
    if (!best) return false;
    Apply(heavy, best_partner, *best);
    return true;
  }

  // The exchange that brings the two loads closest to each other.
  std::optional<Exchange> BestExchange(uint32_t heavy, uint32_t light) const {
    const std::vector<uint32_t>& from = groups_[heavy];
    const std::vector<uint32_t>& to = groups_[light];
    const int64_t gap = loads_[heavy] - loads_[light];
    std::optional<Exchange> best;
    // |gap - 2 amount|: what would remain of the gap.
    int64_t best_gap = gap;
    const auto consider = [&](size_t give, std::optional<size_t> take) {
      const int64_t amount =
          costs_[from[give]] - (take ? costs_[to[*take]] : 0);
      const int64_t remains = std::abs(gap - 2 * amount);
      if (amount > 0 && remains < best_gap) {
        best_gap = remains;
        best = Exchange{give, take, amount};
      }
    };
    for (size_t give = 0; give < from.size(); ++give) {
      if (!equal_count_) consider(give, std::nullopt);
      // The partner whose cost is nearest to the wanted one stands on either
      // side of where it would be inserted.
      const int64_t wanted = costs_[from[give]] - gap / 2;
      const size_t at =
          std::partition_point(
              to.begin(), to.end(),
              [&](uint32_t i) { return costs_[i] > wanted; }) -
          to.begin();
      if (at > 0) consider(give, at - 1);
      if (at < to.size()) consider(give, at);
    }
    return best;
  }

  void Apply(uint32_t heavy, uint32_t light, const Exchange& exchange) {
    by_load_.erase({loads_[heavy], heavy});
    by_load_.erase({loads_[light], light});
    loads_[heavy] -= exchange.amount;
    loads_[light] += exchange.amount;
    const uint32_t given = groups_[heavy][exchange.give];
    groups_[heavy].erase(groups_[heavy].begin() + exchange.give);
    if (exchange.take) {
      Insert(groups_[light][*exchange.take], heavy);
      groups_[light].erase(groups_[light].begin() + *exchange.take);
    }
    Insert(given, light);
    by_load_.emplace(loads_[heavy], heavy);
    by_load_.emplace(loads_[light], light);
  }

  void Insert(uint32_t item, uint32_t group) {
    std::vector<uint32_t>& members = groups_[group];
    members.insert(
        std::lower_bound(members.begin(), members.end(), item, Heavier{costs_}),
        item);
  }

  const std::vector<int64_t> costs_;
  Groups groups_;
  const bool equal_count_;
  std::vector<int64_t> loads_;
  std::set<std::pair<int64_t, uint32_t>> by_load_;
};

// Longest processing time first without a cap on a group's count.
Groups UncappedLpt(const std::vector<int64_t>& costs, uint32_t groups) {
  std::vector<uint32_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(
      order.begin(), order.end(),
      [&](uint32_t a, uint32_t b) { return costs[a] > costs[b]; });
  std::set<std::pair<int64_t, uint32_t>> by_load;
  for (uint32_t g = 0; g < groups; ++g) by_load.emplace(0, g);
  Groups result(groups);
  for (const uint32_t i : order) {
    const auto [load, group] = *by_load.begin();
    by_load.erase(by_load.begin());
    by_load.emplace(load + costs[i], group);
    result[group].push_back(i);
  }
  return result;
}

}  // namespace

absl::StatusOr<Groups> BalanceRefined(absl::Span<const double> costs,
                                      uint32_t groups, bool equal_count) {
  BALLAST_RETURN_IF_ERROR(CheckBalanceInput(costs, groups, equal_count));
  const std::vector<int64_t> fixed = FixedPoint(costs);
  std::vector<Search> searches;
  if (costs.size() % groups == 0) {
    BALLAST_ASSIGN_OR_RETURN(Groups start, BalanceLpt(costs, groups));
    searches.emplace_back(fixed, std::move(start), equal_count);
  }
  if (!equal_count) {
    searches.emplace_back(fixed, UncappedLpt(fixed, groups), equal_count);
  }
  for (Search& search : searches) search.Run();
  return std::min_element(searches.begin(), searches.end(),
                          [](const Search& a, const Search& b) {
                            return a.largest_load() < b.largest_load();
                          })
      ->TakeGroups();
}

}  // namespace ballast
