#include "server/schedule/pack_schedule.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

template <typename T>
using MinHeap = std::priority_queue<T, std::vector<T>, std::greater<T>>;

absl::Status CheckLengths(const std::vector<uint32_t>& lengths,
                          const PackLimits& limits) {
  if (limits.capacity == 0 || limits.multiple == 0 || lengths.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", lengths.size(), " samples, packs of ",
                     limits.capacity, " tokens, a multiple of ",
                     limits.multiple, " packs; wanted each to be at least 1"));
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] > limits.capacity) {
      return absl::InvalidArgumentError(
          absl::StrCat("sample ", i, " has ", lengths[i],
                       " tokens with padding; a pack "
                       "holds ",
                       limits.capacity, " (packing.max_tokens_per_rank * cp)"));
    }
  }
  return absl::OkStatus();
}

uint64_t Cost(const std::vector<uint64_t>& squares,
              const std::vector<uint32_t>& pack) {
  uint64_t cost = 0;
  for (const uint32_t i : pack) cost += squares[i];
  return cost;
}

// Sorts by descending cost, so that packs that run at the same time have
// similar costs.
void SortByCost(const std::vector<uint64_t>& squares, Groups* packs) {
  std::vector<std::pair<uint64_t, uint32_t>> order;  // cost, pack
  order.reserve(packs->size());
  for (uint32_t p = 0; p < packs->size(); ++p) {
    std::sort((*packs)[p].begin(), (*packs)[p].end());
    order.emplace_back(Cost(squares, (*packs)[p]), p);
  }
  std::stable_sort(
      order.begin(), order.end(),
      [](const auto& a, const auto& b) { return a.first > b.first; });
  Groups sorted;
  sorted.reserve(packs->size());
  for (const auto& [cost, p] : order) sorted.push_back(std::move((*packs)[p]));
  *packs = std::move(sorted);
}

// Puts each sample, longest first, into the cheapest pack that has room.
// Returns no packs if some sample fits nowhere.
Groups FillByCost(const std::vector<uint32_t>& lengths,
                  const std::vector<uint64_t>& squares, size_t packs,
                  uint64_t capacity) {
  std::vector<uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::make_pair(lengths[a], squares[a]) >
           std::make_pair(lengths[b], squares[b]);
  });
  // Samples only become shorter, so a pack that has room keeps it until it is
  // filled further.
  MinHeap<std::tuple<uint64_t, size_t, uint32_t>> with_room;  // cost, members
  MinHeap<std::pair<uint64_t, uint32_t>> without;             // tokens
  // Members keep packs from staying empty.
  for (uint32_t p = 0; p < packs; ++p) with_room.emplace(0, 0, p);
  std::vector<uint64_t> tokens(packs, 0);
  std::vector<uint64_t> costs(packs, 0);
  Groups filled(packs);
  for (const uint32_t i : order) {
    while (!without.empty() && without.top().first + lengths[i] <= capacity) {
      const uint32_t p = without.top().second;
      without.pop();
      with_room.emplace(costs[p], filled[p].size(), p);
    }
    if (with_room.empty()) return {};
    const uint32_t p = std::get<2>(with_room.top());
    with_room.pop();
    tokens[p] += lengths[i];
    costs[p] += squares[i];
    filled[p].push_back(i);
    without.emplace(tokens[p], p);
  }
  return filled;
}

// Packs that run together. The pack with the largest encoder load gives a
// sample to one of the packs with the least, or swaps one with it.
class PackSet {
 public:
  PackSet(const std::vector<uint32_t>& lengths,
          const std::vector<uint64_t>& squares,
          const std::vector<int64_t>& loads, uint64_t capacity, double slack,
          absl::Span<std::vector<uint32_t>> packs)
      : lengths_(lengths),
        squares_(squares),
        loads_(loads),
        capacity_(capacity),
        packs_(packs),
        sums_(packs.size()) {
    uint64_t largest = 0;
    for (uint32_t p = 0; p < packs_.size(); ++p) {
      for (const uint32_t i : packs_[p]) Add(i, &sums_[p]);
      largest = std::max(largest, sums_[p].squares);
      by_load_.emplace(sums_[p].load, p);
      SortByLoad(p);
    }
    allowed_ = largest + static_cast<uint64_t>(slack * largest);
  }

  void Even() {
    // Each step lowers the set's largest load, or the number of packs that have
    // it.
    for (size_t steps = kStepsAPack * packs_.size(); steps > 0; --steps) {
      if (!Lower(by_load_.rbegin()->second)) break;
    }
    for (std::vector<uint32_t>& pack : packs_)
      std::sort(pack.begin(), pack.end());
  }

 private:
  static constexpr size_t kStepsAPack = 4;
  static constexpr int kLightest = 16;
  // Samples of the other pack that are tried on each side of the wanted load.
  static constexpr ptrdiff_t kNeighbours = 4;
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Sums {
    uint64_t tokens = 0;
    uint64_t squares = 0;
    int64_t load = 0;
  };

  struct Swap {
    uint32_t from = 0, to = 0;        // packs
    uint32_t give = 0, take = kNone;  // samples
    int64_t load = 0;                 // the larger of both afterwards
  };

  void Add(uint32_t i, Sums* sums) const {
    sums->tokens += lengths_[i];
    sums->squares += squares_[i];
    sums->load += loads_[i];
  }

  void Remove(uint32_t i, Sums* sums) const {
    sums->tokens -= lengths_[i];
    sums->squares -= squares_[i];
    sums->load -= loads_[i];
  }

  void SortByLoad(uint32_t p) {
    std::sort(packs_[p].begin(), packs_[p].end(), [&](uint32_t a, uint32_t b) {
      return std::make_pair(loads_[a], a) < std::make_pair(loads_[b], b);
    });
  }

  // The sums of a pack that loses `give` and gets `take`.
  Sums After(uint32_t p, uint32_t give, uint32_t take) const {
    Sums sums = sums_[p];
    if (give != kNone) Remove(give, &sums);
    if (take != kNone) Add(take, &sums);
    return sums;
  }

  bool Fits(const Sums& sums) const {
    return sums.tokens <= capacity_ && sums.squares <= allowed_;
  }

  // Keeps the swap in `best` if it is allowed and better.
  void Try(Swap swap, Swap* best) const {
    const Sums from = After(swap.from, swap.give, swap.take);
    const Sums to = After(swap.to, swap.take, swap.give);
    swap.load = std::max(from.load, to.load);
    if (swap.load < best->load && Fits(from) && Fits(to)) *best = swap;
  }

  void TryPacks(uint32_t from, uint32_t to, Swap* best) const {
    const std::vector<uint32_t>& theirs = packs_[to];
    const int64_t wanted = (sums_[from].load - sums_[to].load) / 2;
    for (const uint32_t give : packs_[from]) {
      if (loads_[give] == 0) continue;
      if (packs_[from].size() > 1) Try({from, to, give}, best);
      const auto near = std::partition_point(
          theirs.begin(), theirs.end(),
          [&](uint32_t i) { return loads_[i] < loads_[give] - wanted; });
      const auto end = near + std::min(kNeighbours, theirs.end() - near);
      for (auto it = near - std::min(kNeighbours, near - theirs.begin());
           it != end; ++it) {
        if (loads_[*it] < loads_[give]) Try({from, to, give, *it}, best);
      }
    }
  }

  // Whether the load of pack `from` could be lowered without another's
  // reaching it.
  bool Lower(uint32_t from) {
    Swap best;
    best.load = sums_[from].load;
    int tried = 0;
    for (const auto& [load, to] : by_load_) {
      if (to == from || tried++ == kLightest) break;
      TryPacks(from, to, &best);
    }
    if (best.load == sums_[from].load) return false;
    Move(best);
    return true;
  }

  void Move(const Swap& swap) {
    Exchange(swap.from, swap.give, swap.take);
    Exchange(swap.to, swap.take, swap.give);
  }

  void Exchange(uint32_t p, uint32_t give, uint32_t take) {
    by_load_.erase({sums_[p].load, p});
    sums_[p] = After(p, give, take);
    by_load_.emplace(sums_[p].load, p);
    std::vector<uint32_t>& pack = packs_[p];
    if (give != kNone) pack.erase(std::find(pack.begin(), pack.end(), give));
    if (take != kNone) pack.push_back(take);
    SortByLoad(p);
  }

  const std::vector<uint32_t>& lengths_;
  const std::vector<uint64_t>& squares_;
  const std::vector<int64_t>& loads_;
  const uint64_t capacity_;
  const absl::Span<std::vector<uint32_t>> packs_;  // members by ascending load
  std::vector<Sums> sums_;
  std::set<std::pair<int64_t, uint32_t>> by_load_;
  uint64_t allowed_ = 0;  // squares of a pack
};

}  // namespace

void EvenEncoders(const std::vector<uint32_t>& lengths,
                  const std::vector<uint64_t>& squares,
                  const std::vector<int64_t>& loads, const PackLimits& limits,
                  double slack, Groups* packs) {
  for (size_t first = 0; first < packs->size(); first += limits.multiple) {
    const size_t count =
        std::min<size_t>(limits.multiple, packs->size() - first);
    PackSet(lengths, squares, loads, limits.capacity, slack,
            absl::MakeSpan(*packs).subspan(first, count))
        .Even();
  }
}

uint64_t PackedTime(const std::vector<uint64_t>& squares, const Groups& packs,
                    uint32_t together) {
  uint64_t time = 0;
  for (size_t first = 0; first < packs.size(); first += together) {
    uint64_t largest = 0;
    const size_t end = std::min(packs.size(), first + together);
    for (size_t p = first; p < end; ++p) {
      largest = std::max(largest, Cost(squares, packs[p]));
    }
    time += largest;
  }
  return time;
}

absl::StatusOr<Groups> PackInOrder(const std::vector<uint32_t>& lengths,
                                   const PackLimits& limits) {
  BALLAST_RETURN_IF_ERROR(CheckLengths(lengths, limits));
  Groups packs(1);
  uint64_t tokens = 0;
  for (uint32_t i = 0; i < lengths.size(); ++i) {
    if (tokens + lengths[i] > limits.capacity) {
      packs.emplace_back();
      tokens = 0;
    }
    packs.back().push_back(i);
    tokens += lengths[i];
  }
  const size_t wanted =
      (packs.size() + limits.multiple - 1) / limits.multiple * limits.multiple;
  if (wanted > lengths.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(lengths.size(), " samples cannot fill ", wanted,
                     " packs, a multiple of ", limits.multiple,
                     "; make batch.global a multiple of it"));
  }
  // There are enough samples, so a pack to split is always found.
  for (size_t from = packs.size() - 1; packs.size() < wanted;) {
    if (packs[from].size() < 2) {
      --from;
      continue;
    }
    const uint32_t last = packs[from].back();
    packs[from].pop_back();
    packs.push_back({last});
  }
  return packs;
}

absl::StatusOr<Groups> PackBalanced(const std::vector<uint32_t>& lengths,
                                    const std::vector<uint64_t>& squares,
                                    const PackLimits& limits) {
  BALLAST_ASSIGN_OR_RETURN(const Groups in_order, PackInOrder(lengths, limits));
  // The reference's packs, sorted by cost: never slower, since sorting
  // minimises the sum of each set's largest.
  Groups best = in_order;
  SortByCost(squares, &best);
  Groups filled =
      FillByCost(lengths, squares, in_order.size(), limits.capacity);
  if (filled.empty()) return best;
  SortByCost(squares, &filled);
  if (PackedTime(squares, filled, limits.multiple) <
      PackedTime(squares, best, limits.multiple)) {
    best = std::move(filled);
  }
  return best;
}

}  // namespace ballast
