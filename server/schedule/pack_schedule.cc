#include "server/schedule/pack_schedule.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <utility>

#include "absl/numeric/int128.h"
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

// The pack of each sample.
struct Packing {
  std::vector<uint32_t> pack_of;
  size_t packs = 0;
};

// Packs in order of the samples; the last ones are split until their number is
// a multiple of limits.multiple. Errors: as PackInOrder.
absl::StatusOr<Packing> FillInOrder(const std::vector<uint32_t>& lengths,
                                    const PackLimits& limits) {
  BALLAST_RETURN_IF_ERROR(CheckLengths(lengths, limits));
  Packing packing;
  packing.pack_of.reserve(lengths.size());
  std::vector<uint32_t> ends;  // of each pack, in samples
  uint64_t tokens = 0;
  for (uint32_t i = 0; i < lengths.size(); ++i) {
    if (tokens + lengths[i] > limits.capacity) {
      ends.push_back(i);
      tokens = 0;
    }
    packing.pack_of.push_back(ends.size());
    tokens += lengths[i];
  }
  ends.push_back(lengths.size());
  packing.packs = ends.size();
  const size_t wanted =
      (ends.size() + limits.multiple - 1) / limits.multiple * limits.multiple;
  if (wanted > lengths.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(lengths.size(), " samples cannot fill ", wanted,
                     " packs, a multiple of ", limits.multiple,
                     "; make batch.global a multiple of it"));
  }
  // There are enough samples, so a pack to split is always found.
  for (size_t from = ends.size() - 1; packing.packs < wanted;) {
    if (ends[from] - (from == 0 ? 0 : ends[from - 1]) < 2) {
      --from;
      continue;
    }
    // A sample that leaves stays the end of those before it.
    packing.pack_of[--ends[from]] = packing.packs++;
  }
  return packing;
}

// Puts each sample, longest first, into the cheapest pack that has room; of
// equally cheap ones into the one with the fewest samples, then the first.
// Returns no packs if some sample fits nowhere.
Packing FillByCost(const std::vector<uint32_t>& lengths,
                   const std::vector<uint64_t>& squares, size_t packs,
                   uint64_t capacity) {
  // Longest first, then largest square, then in order: as one number.
  std::vector<absl::uint128> order;
  order.reserve(lengths.size());
  for (uint32_t i = 0; i < lengths.size(); ++i) {
    order.push_back(absl::uint128(~lengths[i]) << 96 |
                    absl::uint128(~squares[i]) << 32 | i);
  }
  std::sort(order.begin(), order.end());
  struct Sums {
    uint64_t tokens = 0;
    uint64_t cost = 0;
    uint32_t members = 0;
  };
  std::vector<Sums> sums(packs);
  Packing filled{std::vector<uint32_t>(lengths.size()), packs};
  // Samples only become shorter, so a pack that has room keeps it until it is
  // filled further. Empty packs, of which none is dearer or has more members,
  // are used first: packs of one sample are in order of their tokens.
  MinHeap<absl::uint128> with_room;                // cost, members, pack
  MinHeap<std::pair<uint64_t, uint32_t>> without;  // tokens, pack
  size_t singles = std::min(packs, order.size());  // without, the first ones
  const auto open = [&](uint32_t p) {
    with_room.push(
        absl::MakeUint128(sums[p].cost, uint64_t{sums[p].members} << 32 | p));
  };
  for (size_t place = 0; place < order.size(); ++place) {
    const uint32_t i = absl::Uint128Low64(order[place]);
    uint32_t p = place;
    if (place >= packs) {
      const uint64_t most = capacity - lengths[i];
      while (singles > 0 && sums[singles - 1].tokens <= most) open(--singles);
      for (; !without.empty() && without.top().first <= most; without.pop()) {
        open(without.top().second);
      }
      if (with_room.empty()) return {};
      p = absl::Uint128Low64(with_room.top());
      with_room.pop();
    }
    filled.pack_of[i] = p;
    sums[p].tokens += lengths[i];
    sums[p].cost += squares[i];
    ++sums[p].members;
    if (place >= packs) without.emplace(sums[p].tokens, p);
  }
  return filled;
}

// Packs by descending cost, so that packs that run at the same time have
// similar costs.
class SortedPacks {
 public:
  SortedPacks(const std::vector<uint64_t>& squares, Packing packing)
      : packing_(std::move(packing)) {
    std::vector<uint64_t> costs(packing_.packs);
    for (size_t i = 0; i < squares.size(); ++i) {
      costs[packing_.pack_of[i]] += squares[i];
    }
    by_cost_.reserve(costs.size());
    for (uint32_t p = 0; p < costs.size(); ++p) {
      by_cost_.push_back(absl::MakeUint128(~costs[p], p));
    }
    std::sort(by_cost_.begin(), by_cost_.end());
  }

  // As PackedTime.
  uint64_t Time(uint32_t together) const {
    uint64_t time = 0;
    for (size_t first = 0; first < by_cost_.size(); first += together) {
      time += ~absl::Uint128High64(by_cost_[first]);
    }
    return time;
  }

  Groups Take() const {
    std::vector<uint32_t> sizes(by_cost_.size());
    for (const uint32_t p : packing_.pack_of) ++sizes[p];
    std::vector<uint32_t> numbers(by_cost_.size());
    Groups groups(by_cost_.size());
    for (size_t number = 0; number < by_cost_.size(); ++number) {
      const uint32_t p = absl::Uint128Low64(by_cost_[number]);
      numbers[p] = number;
      groups[number].reserve(sizes[p]);
    }
    for (uint32_t i = 0; i < packing_.pack_of.size(); ++i) {
      groups[numbers[packing_.pack_of[i]]].push_back(i);
    }
    return groups;
  }

 private:
  Packing packing_;
  std::vector<absl::uint128> by_cost_;  // the opposite of the cost, pack
};

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
      uint64_t cost = 0;
      for (const uint32_t i : packs[p]) cost += squares[i];
      largest = std::max(largest, cost);
    }
    time += largest;
  }
  return time;
}

absl::StatusOr<Groups> PackInOrder(const std::vector<uint32_t>& lengths,
                                   const PackLimits& limits) {
  BALLAST_ASSIGN_OR_RETURN(const Packing packing, FillInOrder(lengths, limits));
  Groups packs(packing.packs);
  for (uint32_t i = 0; i < lengths.size(); ++i) {
    packs[packing.pack_of[i]].push_back(i);
  }
  return packs;
}

absl::StatusOr<Groups> PackBalanced(const std::vector<uint32_t>& lengths,
                                    const std::vector<uint64_t>& squares,
                                    const PackLimits& limits) {
  BALLAST_ASSIGN_OR_RETURN(Packing packing, FillInOrder(lengths, limits));
  const size_t packs = packing.packs;
  // The reference's packs, sorted by cost: never slower, since sorting
  // minimises the sum of each set's largest.
  const SortedPacks in_order(squares, std::move(packing));
  packing = FillByCost(lengths, squares, packs, limits.capacity);
  if (packing.packs == 0) return in_order.Take();
  const SortedPacks filled(squares, std::move(packing));
  return filled.Time(limits.multiple) < in_order.Time(limits.multiple)
             ? filled.Take()
             : in_order.Take();
}

}  // namespace ballast
