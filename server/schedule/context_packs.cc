#include "server/schedule/context_packs.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/pack_schedule.h"

namespace ballast {
namespace {

// The least power of two, as an exponent, of ranks whose shares of `cost` are
// at most `share`, or `most` if that is less.
uint32_t LeastRanks(int64_t cost, int64_t share, uint32_t most) {
  uint32_t ranks = 0;
  while (ranks < most && cost >> ranks > share) ++ranks;
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
      : limits_(limits),
        most_bits_(std::countr_zero(limits.most_ranks)),
        order_(lengths.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
      return std::make_pair(costs[a], lengths[a]) >
             std::make_pair(costs[b], lengths[b]);
    });
    for (const uint32_t i : order_) {
      lengths_.push_back(lengths[i]);
      costs_.push_back(costs[i]);
      uint8_t bits = 0;
      while (Room(bits) < lengths[i]) ++bits;
      bits_that_hold_.push_back(bits);
    }
  }

  // The plans of each patience; those that are the same once, and without those
  // in which a rank has no part of a pack. `patience`, ascending: a
  // micro-batch's costliest sample gets more ranks than it needs while less
  // than this share of all ranks' time is work.
  std::vector<std::vector<ContextMicroBatch>> Fill(
      absl::Span<const double> patience) const {
    Draft draft;
    draft.left.resize(order_.size());
    std::iota(draft.left.begin(), draft.left.end(), 0);
    std::vector<std::vector<ContextMicroBatch>> plans;
    FillRest(std::move(draft), patience, &plans);
    return plans;
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

  // A micro-batch, and how many values of patience take it.
  struct Choice {
    Filled filled;
    size_t count = 0;
  };

  // The packs of so many ranks of a micro-batch that is being filled.
  struct Width {
    std::set<std::pair<int64_t, uint32_t>> by_load;  // (load, pack)
    // A longer sample has no room in the lightest packs that are tried.
    uint64_t room = std::numeric_limits<uint64_t>::max();
  };

  // Micro-batches so far, their free ranks, and the samples without a pack.
  struct Draft {
    std::vector<std::vector<Pack>> micro_batches;
    std::vector<uint32_t> free;
    std::vector<uint32_t> left;

    void Append(Filled filled) {
      micro_batches.push_back(std::move(filled.packs));
      free.push_back(filled.free);
      left = std::move(filled.left);
    }
  };

  // Tokens of a pack of 2^bits ranks.
  uint64_t Room(uint32_t bits) const { return limits_.tokens_a_rank << bits; }

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

  // Ends a draft in each way that a value of patience wants: together as long
  // as they choose the same.
  void FillRest(Draft draft, absl::Span<const double> patience,
                std::vector<std::vector<ContextMicroBatch>>* plans) const {
    while (!draft.left.empty()) {
      std::vector<Choice> choices = Choose(draft.left, patience);
      for (size_t c = 0; c + 1 < choices.size(); ++c) {
        Draft other = draft;
        other.Append(std::move(choices[c].filled));
        FillRest(std::move(other), patience.first(choices[c].count), plans);
        patience.remove_prefix(choices[c].count);
      }
      draft.Append(std::move(choices.back().filled));
    }
    if (End(&draft)) plans->push_back(TakePacks(std::move(draft)));
  }

  // The next micro-batch, by patience.
  std::vector<Choice> Choose(const std::vector<uint32_t>& left,
                             absl::Span<const double> patience) const {
    std::vector<Choice> choices;
    size_t decided = 0;
    double busy = -1;
    for (uint32_t bits = bits_that_hold_[left[0]];
         bits <= most_bits_ && decided < patience.size(); ++bits) {
      Filled filled = FillOne(left, bits);
      if (filled.busy > busy) {
        busy = filled.busy;
        if (choices.empty() || choices.back().count > 0) choices.emplace_back();
        choices.back().filled = std::move(filled);
      }
      for (; decided < patience.size() && busy >= patience[decided]; ++decided)
        ++choices.back().count;
    }
    choices.back().count += patience.size() - decided;
    return choices;
  }

  // Fills a micro-batch with samples, in their order; the first gets 2^first
  // ranks. Each of the others gets as many as it needs for its tokens, and for
  // its load to be at most about the first's; it goes into a new pack, or
  // the lightest one of so many ranks that has room.
  Filled FillOne(const std::vector<uint32_t>& samples, uint32_t first) const {
    Filled filled;
    filled.free = limits_.ranks;
    const int64_t load = costs_[samples[0]] >> first;
    const int64_t most = load + load / 20;
    std::vector<Width> widths(most_bits_ + 1);
    for (const uint32_t i : samples) {
      const uint32_t bits =
          i == samples[0]
              ? first
              : std::max<uint32_t>(bits_that_hold_[i],
                                   LeastRanks(costs_[i], most, most_bits_));
      Width& width = widths[bits];
      if (const uint32_t ranks = uint32_t{1} << bits; filled.free >= ranks) {
        filled.free -= ranks;
        Pack& pack = filled.packs.emplace_back();
        pack.ranks = ranks;
        Add(i, &pack);
        width.by_load.emplace(pack.load(), filled.packs.size() - 1);
      } else if (lengths_[i] > width.room ||
                 !FillLightest(i, Room(bits), &width, &filled.packs)) {
        filled.left.push_back(i);
      }
    }
    Widen(&filled.packs, &filled.free);
    double work = 0;
    int64_t largest = 1;
    for (const Pack& pack : filled.packs) {
      work += static_cast<double>(pack.cost);
      largest = std::max(largest, pack.load());
    }
    filled.busy = work / limits_.ranks / static_cast<double>(largest);
    return filled;
  }

  // Whether one of the lightest packs of `width`, of `room` tokens each, had
  // room for the sample.
  bool FillLightest(uint32_t i, uint64_t room, Width* width,
                    std::vector<Pack>* packs) const {
    uint64_t free = 0;
    int tried = 0;
    for (auto it = width->by_load.begin();
         it != width->by_load.end() && tried < kTried; ++it, ++tried) {
      Pack& pack = (*packs)[it->second];
      free = std::max(free, room - pack.tokens);
      if (pack.tokens + lengths_[i] > room) continue;
      Add(i, &pack);
      auto node = width->by_load.extract(it);
      node.value().first = pack.load();
      width->by_load.insert(std::move(node));
      width->room = std::numeric_limits<uint64_t>::max();
      return true;
    }
    width->room = free;
    return false;
  }

  // Gives free ranks to packs, each time to the heaviest one that can have
  // twice its ranks.
  void Widen(std::vector<Pack>* packs, uint32_t* free) const {
    // (load, the opposite of the pack): the first of the heaviest is the
    // largest. Free ranks only become fewer: a pack that has too many for them
    // stays as it is.
    std::priority_queue<std::pair<int64_t, int64_t>> heaviest;
    if (*free == 0) return;
    for (size_t p = 0; p < packs->size(); ++p) {
      heaviest.emplace((*packs)[p].load(), -static_cast<int64_t>(p));
    }
    while (*free > 0 && !heaviest.empty()) {
      const int64_t p = heaviest.top().second;
      heaviest.pop();
      Pack& pack = (*packs)[-p];
      if (pack.ranks * 2 > limits_.most_ranks || pack.ranks > *free) continue;
      *free -= pack.ranks;
      pack.ranks *= 2;
      heaviest.emplace(pack.load(), p);
    }
  }

  // Whether all ranks of all micro-batches could have part of a pack.
  bool End(Draft* draft) const {
    while (draft->micro_batches.size() % limits_.multiple != 0) {
      draft->micro_batches.emplace_back();
      draft->free.push_back(limits_.ranks);
    }
    for (uint32_t m = 0; m < draft->micro_batches.size(); ++m) {
      Widen(&draft->micro_batches[m], &draft->free[m]);
      // Splits leave no pack that could have twice its ranks.
      if (draft->free[m] > 0 && !Split(m, draft)) return false;
    }
    for (std::vector<Pack>& packs : draft->micro_batches) Even(&packs);
    return true;
  }

  // Gives the free ranks of micro-batch m samples, each time one of the
  // heaviest pack that can spare one. Whether there were enough.
  bool Split(uint32_t m, Draft* draft) const {
    // (load, the opposites of micro-batch and pack): the first of the heaviest
    // is the largest. Room only becomes less: a pack without a sample that
    // fits will not get one.
    std::priority_queue<std::tuple<int64_t, int64_t, int64_t>> donors;
    const auto add = [&](int64_t micro_batch, int64_t p) {
      const Pack& pack = draft->micro_batches[micro_batch][p];
      if (pack.samples.size() < 2) return;
      donors.emplace(pack.load(), -micro_batch, -p);
    };
    for (size_t other = 0; other < draft->micro_batches.size(); ++other) {
      for (size_t p = 0; p < draft->micro_batches[other].size(); ++p)
        add(other, p);
    }
    for (uint32_t& free = draft->free[m]; free > 0;) {
      if (donors.empty()) return false;
      const auto [load, micro_batch, p] = donors.top();
      donors.pop();
      Pack& donor = draft->micro_batches[-micro_batch][-p];
      const uint32_t ranks = std::bit_floor(std::min(free, limits_.most_ranks));
      const uint32_t given = CostliestOf(donor, ranks * limits_.tokens_a_rank);
      if (given == kNone) continue;
      Remove(given, &donor);
      add(-micro_batch, -p);
      Pack pack;
      pack.ranks = ranks;
      Add(given, &pack);
      draft->micro_batches[m].push_back(std::move(pack));
      free -= ranks;
    }
    return true;
  }

  // The first of a pack's costliest samples of at most `room` tokens.
  uint32_t CostliestOf(const Pack& pack, uint64_t room) const {
    uint32_t found = kNone;
    for (const uint32_t i : pack.samples) {
      if (lengths_[i] > room) continue;
      if (found == kNone || costs_[i] > costs_[found]) found = i;
    }
    return found;
  }

  std::vector<ContextMicroBatch> TakePacks(Draft draft) const {
    std::vector<ContextMicroBatch> taken;
    for (std::vector<Pack>& packs : draft.micro_batches) {
      ContextMicroBatch& micro_batch = taken.emplace_back();
      for (Pack& pack : packs) {
        for (uint32_t& i : pack.samples) i = order_[i];
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

  const ContextLimits limits_;
  const uint32_t most_bits_;  // most_ranks is 2^most_bits_
  // Samples are numbered by their place here: the costliest, of these the
  // longest, come first.
  std::vector<uint32_t> order_;
  std::vector<uint32_t> lengths_;
  std::vector<int64_t> costs_;
  std::vector<uint8_t> bits_that_hold_;  // 2^bits ranks hold the sample
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
  for (auto& packs : Filler(lengths, fixed, limits).Fill({0, 0.6, 0.8, 0.9, 1}))
    plans.push_back(Measure(lengths, fixed, std::move(packs)));
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
