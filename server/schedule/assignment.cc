#include "server/schedule/assignment.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <utility>

namespace ballast {

namespace {

constexpr int kDigitBits = 11;
constexpr size_t kDigits = size_t{1} << kDigitBits;
// Shorter lists are sorted by comparisons.
constexpr size_t kFew = 512;

struct Entry {
  uint64_t below = 0;  // the largest cost minus this one
  uint32_t index = 0;
};

}  // namespace

std::vector<uint32_t> CostliestFirst(const std::vector<int64_t>& costs) {
  std::vector<uint32_t> order(costs.size());
  if (costs.size() < kFew) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return costs[a] > costs[b];
    });
    return order;
  }
  const auto [least, largest] = std::minmax_element(costs.begin(), costs.end());
  std::vector<Entry> entries(costs.size()), sorted(costs.size());
  for (uint32_t i = 0; i < costs.size(); ++i) {
    entries[i] = {static_cast<uint64_t>(*largest - costs[i]), i};
  }
  // Radix sort, lowest digit first; each pass is stable.
  const int bits = std::bit_width(static_cast<uint64_t>(*largest - *least));
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    std::array<uint32_t, kDigits> next = {};
    const auto digit = [&](const Entry& entry) {
      return entry.below >> shift & (kDigits - 1);
    };
    for (const Entry& entry : entries) ++next[digit(entry)];
    uint32_t first = 0;
    for (uint32_t& each : next) first += std::exchange(each, first);
    for (const Entry& entry : entries) sorted[next[digit(entry)]++] = entry;
    std::swap(entries, sorted);
  }
  for (size_t k = 0; k < order.size(); ++k) order[k] = entries[k].index;
  return order;
}

namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr size_t kBidsPerRow = 8;
constexpr int64_t kFar = std::numeric_limits<int64_t>::max();

// Matches rows to columns at minimal cost, where the cost of a pair is minus
// its gain and a row may stay unmatched at cost 0. Maintains prices such that
// no pair's reduced cost (cost - row price - column price) is below -slack and
// every matched pair's is between -slack and 0.
class Matcher {
 public:
  Matcher(const std::vector<std::vector<Benefit>>& rows, int64_t slack)
      : rows_(rows),
        slack_(slack),
        row_price_(rows.size(), 0),
        column_price_(rows.size(), 0),
        column_of_(rows.size(), kNone),
        row_of_(rows.size(), kNone),
        distance_(rows.size(), kFar),
        reached_from_(rows.size(), kNone) {}

  std::vector<uint32_t> Match() {
    Bid();
    if (slack_ > 0) return column_of_;
    for (uint32_t row = 0; row < rows_.size(); ++row) {
      if (column_of_[row] == kNone && row_price_[row] < 0) Augment(row);
    }
    return column_of_;
  }

 private:
  // Lets unmatched rows bid for their best column, up to the price at which
  // their second best is equally good, and take it from its holder. With slack
  // each bid is raised by the slack, so bidding terminates and the result is
  // complete (Bertsekas' auction, 1988). Without slack this is the "augmenting
  // row reduction" of Jonker and Volgenant: it matches most rows cheaply and
  // stops after a few bids a row, since ties would never end.
  void Bid() {
    std::vector<uint32_t> bidders(rows_.size());
    std::iota(bidders.rbegin(), bidders.rend(), 0);
    size_t left = kBidsPerRow * rows_.size();
    while (!bidders.empty() && (slack_ > 0 || left-- > 0)) {
      const uint32_t row = bidders.back();
      bidders.pop_back();
      // Staying unmatched costs 0.
      int64_t best = 0, second = 0;
      uint32_t column = kNone;
      for (const Benefit& benefit : rows_[row]) {
        const int64_t cost = -benefit.gain - column_price_[benefit.column];
        if (cost < best) {
          second = best;
          best = cost;
          column = benefit.column;
        } else if (cost < second) {
          second = cost;
        }
      }
      row_price_[row] = second;
      if (column == kNone) continue;
      column_price_[column] -= second - best + slack_;
      const uint32_t loser = row_of_[column];
      if (loser != kNone) {
        column_of_[loser] = kNone;
        bidders.push_back(loser);
      }
      Assign(row, column);
    }
    // Rows that have not bid get the highest price that their pairs allow.
    for (const uint32_t row : bidders) {
      for (const Benefit& benefit : rows_[row]) {
        row_price_[row] = std::min(
            row_price_[row], -benefit.gain - column_price_[benefit.column]);
      }
    }
  }

  void Assign(uint32_t row, uint32_t column) {
    column_of_[row] = column;
    row_of_[column] = row;
  }

  // Finds the cheapest chain of changes that gives `start` a column, or that
  // ends with some row unmatched.
  void Augment(uint32_t start) {
    using Reached = std::pair<int64_t, uint32_t>;  // distance, column
    std::priority_queue<Reached, std::vector<Reached>, std::greater<Reached>>
        queue;
    touched_.clear();
    settled_.clear();
    uint32_t row = start;
    int64_t row_distance = 0;
    // The row that is cheapest to leave unmatched, and its distance.
    uint32_t last_row = start;
    int64_t end_distance = -row_price_[start];
    uint32_t free_column = kNone;
    while (true) {
      Relax(row, row_distance, &queue);
      uint32_t column = kNone;
      while (!queue.empty()) {
        const auto [distance, next] = queue.top();
        queue.pop();
        if (distance == distance_[next]) {
          column = next;
          break;
        }
      }
      if (column == kNone || distance_[column] >= end_distance) break;
      if (row_of_[column] == kNone) {
        free_column = column;
        end_distance = distance_[column];
        break;
      }
      settled_.push_back(column);
      row = row_of_[column];
      row_distance = distance_[column];
      if (row_distance - row_price_[row] < end_distance) {
        end_distance = row_distance - row_price_[row];
        last_row = row;
      }
    }
    AdjustPrices(start, end_distance);
    Flip(start, free_column, last_row);
    for (const uint32_t column : touched_) distance_[column] = kFar;
  }

  template <typename Queue>
  void Relax(uint32_t row, int64_t row_distance, Queue* queue) {
    for (const Benefit& benefit : rows_[row]) {
      const int64_t reduced =
          -benefit.gain - row_price_[row] - column_price_[benefit.column];
      const int64_t distance = row_distance + reduced;
      if (distance >= distance_[benefit.column]) continue;
      if (distance_[benefit.column] == kFar) touched_.push_back(benefit.column);
      distance_[benefit.column] = distance;
      reached_from_[benefit.column] = row;
      queue->emplace(distance, benefit.column);
    }
  }

  void AdjustPrices(uint32_t start, int64_t end_distance) {
    row_price_[start] += end_distance;
    for (const uint32_t column : settled_) {
      if (distance_[column] >= end_distance) continue;
      row_price_[row_of_[column]] += end_distance - distance_[column];
      column_price_[column] -= end_distance - distance_[column];
    }
  }

  // Reassigns columns along the chain that ends at `free_column`, or at
  // `last_row`, which gives up its column.
  void Flip(uint32_t start, uint32_t free_column, uint32_t last_row) {
    uint32_t column = free_column;
    if (column == kNone) {
      column = column_of_[last_row];
      column_of_[last_row] = kNone;
      if (last_row == start) return;
    }
    while (true) {
      const uint32_t row = reached_from_[column];
      const uint32_t given = column_of_[row];
      Assign(row, column);
      if (row == start) return;
      column = given;
    }
  }

  const std::vector<std::vector<Benefit>>& rows_;
  const int64_t slack_;
  std::vector<int64_t> row_price_, column_price_;
  std::vector<uint32_t> column_of_, row_of_;
  // State of the current search.
  std::vector<int64_t> distance_;
  std::vector<uint32_t> reached_from_;
  std::vector<uint32_t> touched_, settled_;
};

}  // namespace

std::vector<uint32_t> MaxGainAssignment(
    const std::vector<std::vector<Benefit>>& rows, int64_t slack) {
  std::vector<uint32_t> columns = Matcher(rows, slack).Match();
  // Unmatched rows take the remaining columns in order.
  std::vector<bool> taken(rows.size(), false);
  for (const uint32_t column : columns) {
    if (column != kNone) taken[column] = true;
  }
  uint32_t next = 0;
  for (uint32_t& column : columns) {
    if (column != kNone) continue;
    while (taken[next]) ++next;
    column = next++;
  }
  return columns;
}

namespace {

// Number of lightest groups that are always tried as partners of the heaviest
// one, and the largest number that is tried while none helps.
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

// The members that the heavier group gives, and the members that it takes.
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
    // Each load is a multiple of the costs' greatest common divisor.
    if (unit > 0)
      close_enough_ = std::max(close_enough_, (bound + unit - 1) / unit * unit);
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      for (const uint32_t i : groups_[g]) loads_[g] += costs_[i];
    }
    // A set built from sorted values takes linear time.
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
    // Among equal costs the first in the list above comes first: all four
    // fields say which. std::stable_sort would allocate memory for each of
    // these short lists.
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

  // The bundles that `group` may give in a swap; single samples are listed once
  // until the group changes.
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

  // The samples of a bundle; as many entries as its count are used.
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
