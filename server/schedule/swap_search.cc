#include "server/schedule/swap_search.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace ballast {
namespace {

// Number of lightest groups always tried as partners of the heaviest one, and
// the most that are tried while none helps.
constexpr int kFirstPartners = 4;
constexpr int kMaxPartners = 128;
// Average number of swaps per group after which the search stops.
constexpr uint64_t kMaxSwapsPerGroup = 64;
// The search ends this close to the lower bound: within 1/2^12 of it.
constexpr int kCloseEnoughShift = 12;
// Larger groups swap only single samples: they offer enough choice, and the
// number of pairs grows quadratically.
constexpr size_t kMaxMembersForPairs = 24;

// Up to two members of a group, by their index in it, and their summed cost.
struct Bundle {
  int64_t cost = 0;
  std::array<uint32_t, 2> members = {};
  uint32_t count = 0;
};

// The members that the heavier group gives, and those that it takes.
struct Swap {
  Bundle give;
  Bundle take;
  int64_t amount() const { return give.cost - take.cost; }
};

class Search {
 public:
  Search(const std::vector<int64_t>& costs, Groups groups, bool keep_counts,
         int64_t enough)
      : costs_(costs),
        groups_(std::move(groups)),
        keep_counts_(keep_counts),
        loads_(groups_.size(), 0),
        taken_(groups_.size()) {
    int64_t sum = 0, largest = 0, unit = 0;
    for (const int64_t cost : costs_) {
      sum += cost;
      largest = std::max(largest, cost);
      if (unit != 1) unit = std::gcd(unit, cost);
    }
    const int64_t mean = sum / static_cast<int64_t>(groups_.size());
    const int64_t bound = std::max(largest, mean);
    close_enough_ = std::max(enough, bound + (bound >> kCloseEnoughShift));
    // Every load is a multiple of the costs' common divisor.
    if (unit > 0)
      close_enough_ = std::max(close_enough_, (bound + unit - 1) / unit * unit);
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      for (const uint32_t i : groups_[g]) loads_[g] += costs_[i];
    }
    // A set takes what is sorted in linear time.
    std::vector<std::pair<int64_t, uint32_t>> sorted;
    sorted.reserve(groups_.size());
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      sorted.emplace_back(loads_[g], g);
    }
    std::sort(sorted.begin(), sorted.end());
    by_load_ = ByLoad(sorted.begin(), sorted.end());
  }

  void Improve() {
    uint64_t left = kMaxSwapsPerGroup * groups_.size();
    while (
        left-- > 0 && by_load_.rbegin()->first > close_enough_ &&
        (ImproveHeaviest(/*pairs=*/false) || ImproveHeaviest(/*pairs=*/true))) {
    }
  }

  Groups TakeGroups() {
    for (auto& group : groups_) std::sort(group.begin(), group.end());
    return std::move(groups_);
  }

 private:
  using ByLoad = std::set<std::pair<int64_t, uint32_t>>;  // load, group

  // The bundles of one group in ascending order of cost.
  void ListBundles(const std::vector<uint32_t>& group, bool pairs,
                   bool with_none, std::vector<Bundle>* bundles) const {
    bundles->clear();
    if (with_none) bundles->push_back({});
    for (uint32_t i = 0; i < group.size(); ++i) {
      bundles->push_back({costs_[group[i]], {i, 0}, 1});
      if (!pairs || group.size() > kMaxMembersForPairs) continue;
      for (uint32_t j = i + 1; j < group.size(); ++j) {
        bundles->push_back({costs_[group[i]] + costs_[group[j]], {i, j}, 2});
      }
    }
    // Of equal costs the first in the list above first, which all four say.
    // std::stable_sort would allocate memory for each of these short lists.
    const auto before = [](const Bundle& a, const Bundle& b) {
      if (a.cost != b.cost) return a.cost < b.cost;
      if (a.members[0] != b.members[0]) return a.members[0] < b.members[0];
      if (a.count != b.count) return a.count < b.count;
      return a.members[1] < b.members[1];
    };
    if (pairs) {
      std::sort(bundles->begin(), bundles->end(), before);
      return;
    }
    // Groups begin in descending order of cost, and keep most of it.
    std::reverse(bundles->begin(), bundles->end());
    for (size_t i = 1; i < bundles->size(); ++i) {
      const Bundle moved = (*bundles)[i];
      size_t at = i;
      for (; at > 0 && before(moved, (*bundles)[at - 1]); --at) {
        (*bundles)[at] = (*bundles)[at - 1];
      }
      (*bundles)[at] = moved;
    }
  }

  bool ImproveHeaviest(bool pairs) {
    const uint32_t heavy = by_load_.rbegin()->second;
    ListBundles(groups_[heavy], pairs, /*with_none=*/false, &given_);
    uint32_t best_partner = 0;
    std::optional<Swap> best;
    int64_t best_load = loads_[heavy];
    int tried = 0;
    for (const auto& [load, partner] : by_load_) {
      if (partner == heavy) break;
      if (tried >= (best ? kFirstPartners : kMaxPartners)) break;
      ++tried;
      // The larger of the two loads cannot fall below their mean, and later
      // partners are heavier.
      if ((loads_[heavy] + load + 1) / 2 >= best_load) break;
      const std::optional<Swap> found = BestSwap(heavy, partner, pairs);
      if (!found) continue;
      const int64_t larger =
          std::max(loads_[heavy] - found->amount(), load + found->amount());
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

  // What `group` may give in a swap; single samples are listed once until the
  // group changes.
  const std::vector<Bundle>& Takeable(uint32_t group, bool pairs) {
    std::vector<Bundle>* bundles = pairs ? &taken_pairs_ : &taken_[group];
    if (pairs || bundles->empty()) {
      ListBundles(groups_[group], pairs, /*with_none=*/!keep_counts_, bundles);
    }
    return *bundles;
  }

  // The swap that brings the two loads closest to each other. Both lists
  // ascend, so `at` only ever advances.
  std::optional<Swap> BestSwap(uint32_t heavy, uint32_t light, bool pairs) {
    const std::vector<Bundle>& takeable = Takeable(light, pairs);
    const int64_t gap = loads_[heavy] - loads_[light];
    std::optional<Swap> best;
    int64_t best_gap = gap;  // |gap - 2 amount|: the gap that remains
    size_t at = 0;
    for (const Bundle& give : given_) {
      const int64_t wanted = give.cost - gap / 2;
      while (at < takeable.size() && takeable[at].cost < wanted) ++at;
      // The nearest costs are on either side; counts may exclude them.
      for (size_t k = at > 1 ? at - 2 : 0;
           k < std::min(at + 2, takeable.size()); ++k) {
        const Bundle& take = takeable[k];
        if (keep_counts_ && take.count != give.count) continue;
        const int64_t remains = std::abs(gap - 2 * (give.cost - take.cost));
        if (remains < best_gap) {
          best_gap = remains;
          best = Swap{give, take};
        }
      }
    }
    return best;
  }

  void Apply(uint32_t heavy, uint32_t light, const Swap& swap) {
    taken_[heavy].clear();
    taken_[light].clear();
    by_load_.erase({loads_[heavy], heavy});
    by_load_.erase({loads_[light], light});
    loads_[heavy] -= swap.amount();
    loads_[light] += swap.amount();
    const Removed given = Remove(swap.give, &groups_[heavy]);
    const Removed taken = Remove(swap.take, &groups_[light]);
    groups_[light].insert(groups_[light].end(), given.begin(),
                          given.begin() + swap.give.count);
    groups_[heavy].insert(groups_[heavy].end(), taken.begin(),
                          taken.begin() + swap.take.count);
    by_load_.emplace(loads_[heavy], heavy);
    by_load_.emplace(loads_[light], light);
  }

  // The samples of a bundle, as many as it counts.
  using Removed = std::array<uint32_t, 2>;
  static Removed Remove(const Bundle& bundle, std::vector<uint32_t>* group) {
    Removed removed = {};
    uint32_t count = 0;
    // From the back, so that the first index stays valid.
    for (uint32_t k = bundle.count; k-- > 0;) {
      removed[count++] = (*group)[bundle.members[k]];
      group->erase(group->begin() + bundle.members[k]);
    }
    return removed;
  }

  const std::vector<int64_t>& costs_;
  Groups groups_;
  const bool keep_counts_;
  std::vector<int64_t> loads_;
  int64_t close_enough_;
  ByLoad by_load_;
  std::vector<std::vector<Bundle>> taken_;   // of each group; empty: unknown
  std::vector<Bundle> given_, taken_pairs_;  // reused
};

}  // namespace

Groups ImproveBySwaps(const std::vector<int64_t>& costs, Groups groups,
                      bool keep_counts, int64_t enough) {
  Search search(costs, std::move(groups), keep_counts, enough);
  search.Improve();
  return search.TakeGroups();
}

}  // namespace ballast
