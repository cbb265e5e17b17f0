#include "server/schedule/context_packs.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/pack_schedule.h"

namespace ballast {
namespace {

// The least power of two of ranks whose shares of `cost` are at most `share`,
// or `most` if that is less.
uint32_t LeastRanks(int64_t cost, int64_t share, uint32_t most) {
  uint32_t ranks = 1;
  while (ranks < most && cost / ranks > share) ranks *= 2;
  return ranks;
}

absl::Status CheckLimits(const ContextLimits& limits) {
  if (limits.ranks > 0 && std::has_single_bit(limits.most_ranks) &&
      limits.ranks % limits.most_ranks == 0 && limits.tokens_a_rank > 0 &&
      limits.multiple > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "found ", limits.ranks, " ranks of which ", limits.most_ranks,
      " share a pack, ", limits.tokens_a_rank, " tokens a rank, a multiple of ",
      limits.multiple,
      " micro-batches; wanted each to be at least 1, and ranks that share a "
      "pack to be a power of two that divides the ranks"));
}

absl::Status CheckInput(const std::vector<uint32_t>& lengths,
                        absl::Span<const double> costs,
                        const ContextLimits& limits) {
  BALLAST_RETURN_IF_ERROR(CheckLimits(limits));
  if (lengths.empty() || costs.size() != lengths.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", lengths.size(), " samples with ", costs.size(),
                     " costs; wanted at least one, and a cost for each"));
  }
  const uint64_t room = limits.tokens_a_rank * limits.most_ranks;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] <= room) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "sample ", i, " has ", lengths[i], " tokens with padding; a pack of ",
        limits.most_ranks, " ranks holds ", room,
        " (packing.max_tokens_per_rank * packing.dynamic_cp)"));
  }
  return CheckBalanceInput(costs, 1, /*equal_count=*/false);
}

// Fills micro-batches with packs, the costliest samples first, so that packs
// that run together have similar loads: costs divided by ranks.
class Filler {
 public:
  Filler(const std::vector<uint32_t>& lengths,
         const std::vector<int64_t>& costs, const ContextLimits& limits)
      : lengths_(lengths), costs_(costs), limits_(limits) {}

  // Whether all ranks of all micro-batches have part of a pack. `patience`: a
  // micro-batch's costliest sample gets more ranks than it needs while less
  // than this share of all ranks' time is work.
  bool Fill(double patience) {
    std::vector<uint32_t> left(lengths_.size());
    std::iota(left.begin(), left.end(), 0);
    std::stable_sort(left.begin(), left.end(), [&](uint32_t a, uint32_t b) {
      return std::make_pair(costs_[a], lengths_[a]) >
             std::make_pair(costs_[b], lengths_[b]);
    });
    while (!left.empty()) {
      Filled best;
      for (uint32_t ranks = RanksThatHold(left[0]); ranks <= limits_.most_ranks;
           ranks *= 2) {
        Filled filled = FillOne(left, ranks);
        if (filled.busy > best.busy) best = std::move(filled);
        if (best.busy >= patience) break;
      }
      micro_batches_.push_back(std::move(best.packs));
      free_.push_back(best.free);
      left = std::move(best.left);
    }
    while (micro_batches_.size() % limits_.multiple != 0) {
      micro_batches_.emplace_back();
      free_.push_back(limits_.ranks);
    }
    for (uint32_t m = 0; m < micro_batches_.size(); ++m) {
      while (free_[m] > 0) {
        if (!Widen(&micro_batches_[m], &free_[m]) && !Split(m)) return false;
      }
    }
    for (std::vector<Pack>& packs : micro_batches_) Even(&packs);
    return true;
  }

  std::vector<ContextMicroBatch> TakePacks() {
    std::vector<ContextMicroBatch> taken;
    for (std::vector<Pack>& packs : micro_batches_) {
      ContextMicroBatch& micro_batch = taken.emplace_back();
      for (Pack& pack : packs) {
        std::sort(pack.samples.begin(), pack.samples.end());
        micro_batch.push_back({0, pack.ranks, std::move(pack.samples)});
      }
      std::sort(micro_batch.begin(), micro_batch.end(),
                [](const ContextPack& a, const ContextPack& b) {
                  return std::make_pair(b.ranks, a.samples[0]) <
                         std::make_pair(a.ranks, b.samples[0]);
                });
      // A sum of multiples of larger powers of two is a multiple of a smaller.
      uint32_t first = 0;
      for (ContextPack& pack : micro_batch) {
        pack.first_rank = first;
        first += pack.ranks;
      }
    }
    return taken;
  }

 private:
  // Packs that are tried for a sample, and as partners of the heaviest.
  static constexpr int kTried = 8;
  static constexpr size_t kStepsAPack = 2;
  // Samples of a pack that are tried.
  static constexpr size_t kSamples = 8;
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Pack {
    uint32_t ranks = 1;
    uint64_t tokens = 0;
    int64_t cost = 0;
    std::vector<uint32_t> samples;

    int64_t load() const { return cost / ranks; }
  };

  // A micro-batch, and the samples that it leaves.
  struct Filled {
    std::vector<Pack> packs;
    uint32_t free = 0;  // ranks
    std::vector<uint32_t> left;
    double busy = -1;  // of all ranks' time
  };

  uint32_t RanksThatHold(uint32_t i) const {
    uint32_t ranks = 1;
    while (ranks * limits_.tokens_a_rank < lengths_[i]) ranks *= 2;
    return ranks;
  }

  bool HasRoom(const Pack& pack, uint64_t tokens) const {
    return pack.tokens + tokens <= pack.ranks * limits_.tokens_a_rank;
  }

  void Add(uint32_t i, Pack* pack) const {
    pack->tokens += lengths_[i];
    pack->cost += costs_[i];
    pack->samples.push_back(i);
  }

  void Remove(uint32_t i, Pack* pack) const {
    pack->tokens -= lengths_[i];
    pack->cost -= costs_[i];
    pack->samples.erase(
        std::find(pack->samples.begin(), pack->samples.end(), i));
  }

  // Fills a micro-batch with samples, in their order; the first gets `ranks`
  // ranks. Each of the others gets as many as it needs for its tokens, and for
  // its load to be about that of the first or less; it goes into a new pack, or
  // the lightest one of so many ranks that has room.
  Filled FillOne(const std::vector<uint32_t>& samples, uint32_t ranks) const {
    Filled filled;
    filled.free = limits_.ranks;
    const int64_t load = costs_[samples[0]] / ranks;
    const int64_t most = load + load / 20;
    // By ranks: (load, pack).
    std::map<uint32_t, std::set<std::pair<int64_t, uint32_t>>> by_load;
    for (const uint32_t i : samples) {
      const uint32_t wanted =
          i == samples[0]
              ? ranks
              : std::max(RanksThatHold(i),
                         LeastRanks(costs_[i], most, limits_.most_ranks));
      auto& same = by_load[wanted];
      uint32_t p = kNone;
      if (filled.free >= wanted) {
        p = filled.packs.size();
        filled.packs.emplace_back().ranks = wanted;
        filled.free -= wanted;
      } else {
        int tried = 0;
        for (auto it = same.begin(); it != same.end() && tried < kTried;
             ++it, ++tried) {
          if (!HasRoom(filled.packs[it->second], lengths_[i])) continue;
          p = it->second;
          same.erase(it);
          break;
        }
      }
      if (p == kNone) {
        filled.left.push_back(i);
        continue;
      }
      Add(i, &filled.packs[p]);
      same.emplace(filled.packs[p].load(), p);
    }
    while (filled.free > 0 && Widen(&filled.packs, &filled.free)) {
    }
    double work = 0;
    int64_t largest = 1;
    for (const Pack& pack : filled.packs) {
      work += static_cast<double>(pack.cost);
      largest = std::max(largest, pack.load());
    }
    filled.busy = work / limits_.ranks / static_cast<double>(largest);
    return filled;
  }

  // Gives free ranks to the heaviest pack that can have twice its ranks.
  bool Widen(std::vector<Pack>* packs, uint32_t* free) const {
    Pack* heaviest = nullptr;
    for (Pack& pack : *packs) {
      if (pack.ranks * 2 > limits_.most_ranks || pack.ranks > *free) continue;
      if (heaviest == nullptr || pack.load() > heaviest->load()) {
        heaviest = &pack;
      }
    }
    if (heaviest == nullptr) return false;
    *free -= heaviest->ranks;
    heaviest->ranks *= 2;
    return true;
  }

  // Gives free ranks of micro-batch m a sample of the heaviest pack that can
  // spare one.
  bool Split(uint32_t m) {
    uint32_t ranks = 1;
    while (ranks * 2 <= std::min(free_[m], limits_.most_ranks)) ranks *= 2;
    Pack* donor = nullptr;
    uint32_t given = kNone;
    for (std::vector<Pack>& packs : micro_batches_) {
      for (Pack& pack : packs) {
        if (pack.samples.size() < 2 ||
            (donor != nullptr && pack.load() <= donor->load())) {
          continue;
        }
        uint32_t largest = kNone;
        for (const uint32_t i : pack.samples) {
          if (lengths_[i] > ranks * limits_.tokens_a_rank) continue;
          if (largest == kNone || costs_[i] > costs_[largest]) largest = i;
        }
        if (largest == kNone) continue;
        donor = &pack;
        given = largest;
      }
    }
    if (donor == nullptr) return false;
    Remove(given, donor);
    Pack pack;
    pack.ranks = ranks;
    Add(given, &pack);
    micro_batches_[m].push_back(std::move(pack));
    free_[m] -= ranks;
    return true;
  }

  struct Swap {
    uint32_t to = kNone;
    uint32_t give = kNone, take = kNone;
    int64_t load = 0;  // the larger of both afterwards
  };

  // Keeps the swap of `a` with `b` in `best` if limits allow it and it is
  // better.
  void Try(const Pack& a, const Pack& b, const Swap& swap, Swap* best) const {
    const uint64_t back = swap.take == kNone ? 0 : lengths_[swap.take];
    const int64_t cost =
        costs_[swap.give] - (swap.take == kNone ? 0 : costs_[swap.take]);
    const int64_t load =
        std::max((a.cost - cost) / a.ranks, (b.cost + cost) / b.ranks);
    if (load >= best->load) return;
    if (a.tokens - lengths_[swap.give] + back >
            a.ranks * limits_.tokens_a_rank ||
        b.tokens + lengths_[swap.give] - back >
            b.ranks * limits_.tokens_a_rank) {
      return;
    }
    *best = swap;
    best->load = load;
  }

  // Moves samples from the heaviest pack while its load falls.
  void Even(std::vector<Pack>* packs) const {
    std::set<std::pair<int64_t, uint32_t>> sorted;
    for (uint32_t p = 0; p < packs->size(); ++p) {
      sorted.emplace((*packs)[p].load(), p);
    }
    for (size_t steps = kStepsAPack * packs->size(); steps > 0; --steps) {
      const uint32_t from = sorted.rbegin()->second;
      Pack& a = (*packs)[from];
      Swap best;
      best.load = a.load();
      int tried = 0;
      for (const auto& [load, to] : sorted) {
        if (to == from || tried++ == kTried) break;
        TryPair(a, to, (*packs)[to], &best);
      }
      if (best.to == kNone) return;
      Pack& b = (*packs)[best.to];
      sorted.erase({a.load(), from});
      sorted.erase({b.load(), best.to});
      Remove(best.give, &a);
      Add(best.give, &b);
      if (best.take != kNone) {
        Remove(best.take, &b);
        Add(best.take, &a);
      }
      sorted.emplace(a.load(), from);
      sorted.emplace(b.load(), best.to);
    }
  }

  void TryPair(const Pack& a, uint32_t to, const Pack& b, Swap* best) const {
    const size_t from_a = std::min(a.samples.size(), size_t{kSamples});
    const size_t from_b = std::min(b.samples.size(), size_t{kSamples});
    for (size_t i = 0; i < from_a; ++i) {
      if (a.samples.size() > 1) Try(a, b, {to, a.samples[i], kNone, 0}, best);
      for (size_t k = 0; k < from_b; ++k) {
        Try(a, b, {to, a.samples[i], b.samples[k], 0}, best);
      }
    }
  }

  const std::vector<uint32_t>& lengths_;
  const std::vector<int64_t>& costs_;
  const ContextLimits limits_;
  std::vector<std::vector<Pack>> micro_batches_;
  std::vector<uint32_t> free_;  // ranks of each micro-batch
};

// A plan, its time and the keys that it moves.
struct Plan {
  std::vector<ContextMicroBatch> packs;
  int64_t time = 0;
  uint64_t keys_moved = 0;
};

Plan Measure(const std::vector<uint32_t>& lengths,
             const std::vector<int64_t>& costs,
             std::vector<ContextMicroBatch> packs) {
  Plan plan;
  for (const ContextMicroBatch& micro_batch : packs) {
    int64_t largest = 0;
    for (const ContextPack& pack : micro_batch) {
      int64_t cost = 0;
      for (const uint32_t i : pack.samples) {
        cost += costs[i];
        plan.keys_moved += uint64_t{lengths[i]} * (pack.ranks - 1);
      }
      largest = std::max(largest, cost / pack.ranks);
    }
    plan.time += largest;
  }
  plan.packs = std::move(packs);
  return plan;
}

}  // namespace

absl::StatusOr<std::vector<ContextMicroBatch>> PackStatic(
    const std::vector<uint32_t>& lengths, const ContextLimits& limits) {
  BALLAST_RETURN_IF_ERROR(CheckLimits(limits));
  const uint32_t together = limits.ranks / limits.most_ranks;
  std::vector<uint64_t> squares;
  squares.reserve(lengths.size());
  for (const uint64_t length : lengths) squares.push_back(length * length);
  BALLAST_ASSIGN_OR_RETURN(
      Groups packs, PackBalanced(lengths, squares,
                                 {limits.tokens_a_rank * limits.most_ranks,
                                  together * limits.multiple}));
  std::vector<ContextMicroBatch> micro_batches(packs.size() / together);
  for (size_t p = 0; p < packs.size(); ++p) {
    const uint32_t number = p % together;
    micro_batches[p / together].push_back(
        {number * limits.most_ranks, limits.most_ranks, std::move(packs[p])});
  }
  return micro_batches;
}

absl::StatusOr<std::vector<ContextMicroBatch>> PackByContext(
    const std::vector<uint32_t>& lengths, absl::Span<const double> costs,
    const ContextLimits& limits) {
  BALLAST_RETURN_IF_ERROR(CheckInput(lengths, costs, limits));
  const std::vector<int64_t> fixed =
      FixedPoint(costs, std::accumulate(costs.begin(), costs.end(), 0.0));
  std::vector<Plan> plans;
  auto as_static = PackStatic(lengths, limits);
  if (as_static.ok()) {
    plans.push_back(Measure(lengths, fixed, *std::move(as_static)));
  }
  // Each value gives other widths where ranks wait for the longest samples.
  for (const double patience : {0.0, 0.6, 0.8, 0.9, 1.0}) {
    Filler filler(lengths, fixed, limits);
    if (!filler.Fill(patience)) continue;
    plans.push_back(Measure(lengths, fixed, filler.TakePacks()));
  }
  if (plans.empty()) return as_static.status();
  int64_t best = plans[0].time;
  for (const Plan& plan : plans) best = std::min(best, plan.time);
  const int64_t bound = best + best / 20;
  Plan* chosen = nullptr;
  for (Plan& plan : plans) {
    if (plan.time > bound) continue;
    if (chosen == nullptr ||
        std::make_pair(plan.keys_moved, plan.time) <
            std::make_pair(chosen->keys_moved, chosen->time)) {
      chosen = &plan;
    }
  }
  return std::move(chosen->packs);
}

std::vector<Groups> ListByRank(const std::vector<ContextMicroBatch>& packs,
                               uint32_t ranks) {
  std::vector<Groups> by_rank;
  for (const ContextMicroBatch& micro_batch : packs) {
    Groups& groups = by_rank.emplace_back(ranks);
    for (const ContextPack& pack : micro_batch) {
      for (uint32_t r = 0; r < pack.ranks; ++r) {
        groups[pack.first_rank + r] = pack.samples;
      }
    }
  }
  return by_rank;
}

ContextFigures GetContextFigures(const std::vector<uint32_t>& lengths,
                                 const std::vector<Groups>& by_rank) {
  ContextFigures figures;
  for (const Groups& groups : by_rank) {
    std::map<uint32_t, uint32_t> ranks;  // by sample
    for (const auto& samples : groups) {
      for (const uint32_t i : samples) ++ranks[i];
    }
    double busiest = 0;
    for (const auto& samples : groups) {
      double work = 0, tokens = 0;
      for (const uint32_t i : samples) {
        const double length = lengths[i];
        work += length * length / ranks[i];
        tokens += length / ranks[i];
      }
      busiest = std::max(busiest, work);
      figures.mean += work / groups.size();
      figures.most_tokens = std::max(figures.most_tokens, tokens);
    }
    figures.busiest += busiest;
    for (const auto& [i, count] : ranks) {
      figures.keys_moved += uint64_t{lengths[i]} * (count - 1);
    }
  }
  return figures;
}

}  // namespace ballast
