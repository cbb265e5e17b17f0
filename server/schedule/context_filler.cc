#include "server/schedule/context_filler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "common/threads.h"

namespace ballast {
namespace {

// The load of a pack, and its number; as one number, which is compared at once.
absl::uint128 LoadOf(const ContextDraft::Pack& pack, uint32_t number) {
  return absl::MakeUint128(pack.load(), number);
}

template <typename Compare>
using PacksByLoad =
    std::priority_queue<absl::uint128, std::vector<absl::uint128>, Compare>;

// Fills micro-batches with packs, the costliest samples first, so that packs
// that run together have similar loads: costs divided by ranks.
class Filler {
 public:
  Filler(const std::vector<uint32_t>& lengths,
         const std::vector<int64_t>& costs, const ContextLimits& limits,
         size_t threads)
      : limits_(limits),
        most_bits_(std::countr_zero(limits.most_ranks)),
        threads_(threads) {
    // The costliest first, of these the longest, then in order: as one number.
    std::vector<absl::uint128> order;
    order.reserve(lengths.size());
    for (uint32_t i = 0; i < lengths.size(); ++i) {
      order.push_back(absl::MakeUint128(~static_cast<uint64_t>(costs[i]),
                                        uint64_t{~lengths[i]} << 32 | i));
    }
    std::sort(order.begin(), order.end());
    for (const absl::uint128 sorted : order) {
      const uint32_t i = absl::Uint128Low64(sorted);
      order_.push_back(i);
      lengths_.push_back(lengths[i]);
      costs_.push_back(costs[i]);
      uint8_t bits = 0;
      while (Room(bits) < lengths[i]) ++bits;
      bits_that_hold_.push_back(bits);
    }
    bits_after_ = bits_that_hold_;
    for (size_t i = bits_after_.size(); i-- > 1;) {
      bits_after_[i - 1] = std::max(bits_after_[i - 1], bits_after_[i]);
    }
  }

  // As FillByContext.
  std::vector<ContextDraft> Fill(absl::Span<const double> patience) const {
    ContextDraft draft;
    draft.left.reserve(order_.size());
    for (uint32_t i = 0; i < order_.size(); ++i) {
      draft.left.push_back({i, lengths_[i]});
    }
    draft.next.resize(order_.size(), kNoSample);
    std::vector<ContextDraft> plans;
    FillRest(std::move(draft), patience, &plans);
    return plans;
  }

 private:
  // Packs that are tried for a sample, and as partners of the heaviest.
  static constexpr size_t kTried = 8;
  static constexpr size_t kStepsAPack = 2;
  // Samples of a pack that are tried.
  static constexpr size_t kSamples = 8;

  // A micro-batch that could follow a draft.
  struct Filled {
    std::vector<ContextDraft::Pack> packs;              // without chains
    std::vector<std::pair<uint32_t, uint32_t>> placed;  // sample, pack
    uint32_t free = 0;                                  // ranks
    double busy = -1;                                   // of all ranks' time
  };

  // A micro-batch, and how many values of patience take it.
  struct Choice {
    Filled filled;
    size_t count = 0;
  };

  // The packs of so many ranks of a micro-batch that is being filled, by load
  // and number.
  struct Width {
    // Packs of one sample, the lightest last once `sorted`: samples come
    // costliest first, so they need little sorting, and no heap.
    std::vector<absl::uint128> single;
    bool sorted = false;
    PacksByLoad<std::greater<>> filled;  // the others
    // A longer sample has no room in the lightest packs that are tried.
    uint64_t room = std::numeric_limits<uint64_t>::max();

    bool empty() const { return single.empty() && filled.empty(); }

    absl::uint128 TakeLightest() {
      absl::uint128 lightest;
      if (filled.empty() || (!single.empty() && single.back() < filled.top())) {
        lightest = single.back();
        single.pop_back();
      } else {
        lightest = filled.top();
        filled.pop();
      }
      return lightest;
    }
  };

  // Tokens of a pack of 2^bits ranks.
  uint64_t Room(uint32_t bits) const { return limits_.tokens_a_rank << bits; }

  void Add(uint32_t i, ContextDraft::Pack* pack) const {
    pack->tokens += lengths_[i];
    pack->cost += costs_[i];
  }

  static void Link(uint32_t i, ContextDraft::Pack* pack,
                   std::vector<uint32_t>* next) {
    (pack->first == kNoSample ? pack->first : (*next)[pack->last]) = i;
    pack->last = i;
    (*next)[i] = kNoSample;
  }

  void Append(uint32_t i, ContextDraft::Pack* pack,
              std::vector<uint32_t>* next) const {
    Add(i, pack);
    Link(i, pack, next);
  }

  void Remove(uint32_t i, ContextDraft::Pack* pack,
              std::vector<uint32_t>* next) const {
    pack->tokens -= lengths_[i];
    pack->cost -= costs_[i];
    uint32_t before = kNoSample;
    for (uint32_t at = pack->first; at != i; at = (*next)[at]) before = at;
    (before == kNoSample ? pack->first : (*next)[before]) = (*next)[i];
    if (pack->last == i) pack->last = before;
  }

  // Adds a micro-batch to a draft.
  static void Add(Filled filled, ContextDraft* draft) {
    size_t kept = 0, p = 0;
    for (const ContextDraft::Sample& sample : draft->left) {
      if (p < filled.placed.size() && filled.placed[p].first == sample.number) {
        Link(sample.number, &filled.packs[filled.placed[p++].second],
             &draft->next);
      } else {
        draft->left[kept++] = sample;
      }
    }
    draft->left.resize(kept);
    draft->micro_batches.push_back(std::move(filled.packs));
    draft->free.push_back(filled.free);
  }

  // Ends a draft in each way that a value of patience wants: together as long
  // as they choose the same.
  void FillRest(ContextDraft draft, absl::Span<const double> patience,
                std::vector<ContextDraft>* plans) const {
    while (!draft.left.empty()) {
      std::vector<Choice> choices = Choose(draft.left, patience);
      for (size_t c = 0; c + 1 < choices.size(); ++c) {
        ContextDraft other = draft;
        Add(std::move(choices[c].filled), &other);
        FillRest(std::move(other), patience.first(choices[c].count), plans);
        patience.remove_prefix(choices[c].count);
      }
      Add(std::move(choices.back().filled), &draft);
    }
    if (!End(&draft)) return;
    draft.order = order_;
    plans->push_back(std::move(draft));
  }

  // The next micro-batch, by patience.
  std::vector<Choice> Choose(const std::vector<ContextDraft::Sample>& left,
                             absl::Span<const double> patience) const {
    const uint32_t least = bits_that_hold_[left[0].number];
    std::vector<Filled> filled(most_bits_ + 1 - least);
    // A patience below 1 may be content with the first.
    if (patience.back() >= 1) {
      RunAll(filled.size(), threads_, [&](size_t k) {
        filled[k] = FillOne(left, least + k);
        return absl::OkStatus();
      }).IgnoreError();
    }
    std::vector<Choice> choices;
    size_t decided = 0;
    double busy = -1;
    for (uint32_t k = 0; k < filled.size() && decided < patience.size(); ++k) {
      if (patience.back() < 1) filled[k] = FillOne(left, least + k);
      if (filled[k].busy > busy) {
        busy = filled[k].busy;
        if (choices.empty() || choices.back().count > 0) choices.emplace_back();
        choices.back().filled = std::move(filled[k]);
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
  Filled FillOne(const std::vector<ContextDraft::Sample>& samples,
                 uint32_t first) const {
    Filled filled;
    filled.free = limits_.ranks;
    const int64_t load = costs_[samples[0].number] >> first;
    const int64_t most = load + load / 20;
    // The least ranks, as an exponent, of which each has at most `most`:
    // samples only become cheaper.
    uint32_t least = most_bits_;
    std::vector<Width> widths(most_bits_ + 1);
    uint64_t room = std::numeric_limits<uint64_t>::max();  // of any width
    for (const auto [i, length] : samples) {
      if (length > room) continue;
      while (least > 0 && costs_[i] >> (least - 1) <= most) --least;
      const uint32_t bits = i == samples[0].number
                                ? first
                                : std::max<uint32_t>(bits_that_hold_[i], least);
      Width& width = widths[bits];
      uint32_t p = filled.packs.size();
      if (const uint32_t ranks = uint32_t{1} << bits; filled.free >= ranks) {
        filled.free -= ranks;
        filled.packs.emplace_back().ranks = ranks;
        Add(i, &filled.packs[p]);
        width.single.push_back(LoadOf(filled.packs[p], p));
      } else {
        if (length > width.room) continue;
        p = FillLightest(i, Room(bits), &width, &filled.packs);
        if (p == kNoSample) {
          const uint32_t widest = std::max<uint32_t>(bits_after_[i], least);
          if (filled.free == 0) room = MostRoom(widths, widest);
          continue;
        }
        room = std::numeric_limits<uint64_t>::max();
      }
      filled.placed.emplace_back(i, p);
    }
    Widen(&filled.packs, &filled.free);
    double work = 0;
    int64_t largest = 1;
    for (const ContextDraft::Pack& pack : filled.packs) {
      work += static_cast<double>(pack.cost);
      largest = std::max(largest, pack.load());
    }
    filled.busy = work / limits_.ranks / static_cast<double>(largest);
    return filled;
  }

  // Of the widths up to `widest`.
  static uint64_t MostRoom(const std::vector<Width>& widths, uint32_t widest) {
    uint64_t room = 0;
    for (uint32_t bits = 0; bits <= widest; ++bits) {
      if (!widths[bits].empty()) room = std::max(room, widths[bits].room);
    }
    return room;
  }

  // Adds the sample to the first of the lightest packs of `width`, of `room`
  // tokens each, that has room for it; kNoSample if none has.
  uint32_t FillLightest(uint32_t i, uint64_t room, Width* width,
                        std::vector<ContextDraft::Pack>* packs) const {
    if (!width->sorted) {
      std::sort(width->single.begin(), width->single.end(), std::greater<>());
      width->sorted = true;
    }
    uint64_t free = 0;
    std::array<absl::uint128, kTried> full;
    size_t tried = 0;
    uint32_t found = kNoSample;
    while (!width->empty() && tried < kTried && found == kNoSample) {
      const absl::uint128 lightest = width->TakeLightest();
      const uint32_t p = absl::Uint128Low64(lightest);
      ContextDraft::Pack& pack = (*packs)[p];
      if (pack.tokens + lengths_[i] > room) {
        free = std::max(free, room - pack.tokens);
        full[tried++] = lightest;
        continue;
      }
      found = p;
      Add(i, &pack);
      width->filled.push(LoadOf(pack, p));
    }
    for (size_t k = 0; k < tried; ++k) width->filled.push(full[k]);
    width->room =
        found == kNoSample ? free : std::numeric_limits<uint64_t>::max();
    return found;
  }

  // Gives free ranks to packs, each time to the heaviest one that can have
  // twice its ranks.
  void Widen(std::vector<ContextDraft::Pack>* packs, uint32_t* free) const {
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
      ContextDraft::Pack& pack = (*packs)[-p];
      if (pack.ranks * 2 > limits_.most_ranks || pack.ranks > *free) continue;
      *free -= pack.ranks;
      pack.ranks *= 2;
      heaviest.emplace(pack.load(), p);
    }
  }

  // Whether all ranks of all micro-batches could have part of a pack.
  bool End(ContextDraft* draft) const {
    while (draft->micro_batches.size() % limits_.multiple != 0) {
      draft->micro_batches.emplace_back();
      draft->free.push_back(limits_.ranks);
    }
    for (uint32_t m = 0; m < draft->micro_batches.size(); ++m) {
      Widen(&draft->micro_batches[m], &draft->free[m]);
      // Splits leave no pack that could have twice its ranks.
      if (draft->free[m] > 0 && !Split(m, draft)) return false;
    }
    // No two micro-batches have a sample in common.
    RunAll(draft->micro_batches.size(), threads_, [&](size_t m) {
      Even(&draft->micro_batches[m], &draft->next);
      return absl::OkStatus();
    }).IgnoreError();
    return true;
  }

  // Gives the free ranks of micro-batch m samples, each time one of the
  // heaviest pack that can spare one. Whether there were enough.
  bool Split(uint32_t m, ContextDraft* draft) const {
    // (load, the opposites of micro-batch and pack): the first of the heaviest
    // is the largest. Room only becomes less: a pack without a sample that
    // fits will not get one.
    std::priority_queue<std::tuple<int64_t, int64_t, int64_t>> donors;
    const auto add = [&](int64_t micro_batch, int64_t p) {
      const ContextDraft::Pack& pack = draft->micro_batches[micro_batch][p];
      if (pack.first == pack.last) return;
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
      ContextDraft::Pack& donor = draft->micro_batches[-micro_batch][-p];
      const uint32_t ranks = std::bit_floor(std::min(free, limits_.most_ranks));
      const uint32_t given =
          CostliestOf(donor, ranks * limits_.tokens_a_rank, draft->next);
      if (given == kNoSample) continue;
      Remove(given, &donor, &draft->next);
      add(-micro_batch, -p);
      ContextDraft::Pack pack;
      pack.ranks = ranks;
      Append(given, &pack, &draft->next);
      draft->micro_batches[m].push_back(pack);
      free -= ranks;
    }
    return true;
  }

  // The first of a pack's costliest samples of at most `room` tokens.
  uint32_t CostliestOf(const ContextDraft::Pack& pack, uint64_t room,
                       const std::vector<uint32_t>& next) const {
    uint32_t found = kNoSample;
    for (uint32_t i = pack.first; i != kNoSample; i = next[i]) {
      if (lengths_[i] > room) continue;
      if (found == kNoSample || costs_[i] > costs_[found]) found = i;
    }
    return found;
  }

  struct Swap {
    uint32_t to = kNoSample;
    uint32_t give = kNoSample, take = kNoSample;
    int64_t load = 0;  // the larger of both afterwards
  };

  // Keeps the swap of `a` with `b` in `best` if limits allow it and it is
  // better.
  void Try(const ContextDraft::Pack& a, const ContextDraft::Pack& b,
           const Swap& swap, Swap* best) const {
    const uint64_t back = swap.take == kNoSample ? 0 : lengths_[swap.take];
    const int64_t cost =
        costs_[swap.give] - (swap.take == kNoSample ? 0 : costs_[swap.take]);
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
  void Even(std::vector<ContextDraft::Pack>* packs,
            std::vector<uint32_t>* next) const {
    if (packs->empty()) return;
    std::vector<absl::uint128> loads;
    loads.reserve(packs->size());
    for (uint32_t p = 0; p < packs->size(); ++p) {
      loads.push_back(LoadOf((*packs)[p], p));
    }
    // Both keep loads that packs had before.
    PacksByLoad<std::less<>> heaviest({}, loads);
    PacksByLoad<std::greater<>> lightest({}, std::move(loads));
    const auto is_old = [&](absl::uint128 entry) {
      const uint32_t p = absl::Uint128Low64(entry);
      return entry != LoadOf((*packs)[p], p);
    };
    std::array<absl::uint128, kTried> partners;
    for (size_t steps = kStepsAPack * packs->size(); steps > 0; --steps) {
      while (is_old(heaviest.top())) heaviest.pop();
      const uint32_t from = absl::Uint128Low64(heaviest.top());
      ContextDraft::Pack& a = (*packs)[from];
      Swap best;
      best.load = a.load();
      size_t tried = 0;
      while (tried < kTried && !lightest.empty()) {
        const absl::uint128 entry = lightest.top();
        const uint32_t to = absl::Uint128Low64(entry);
        if (to == from && !is_old(entry)) break;
        lightest.pop();
        // A pack that had its load before is named twice.
        if (is_old(entry) || (tried > 0 && partners[tried - 1] == entry))
          continue;
        partners[tried++] = entry;
        TryPair(a, to, (*packs)[to], *next, &best);
      }
      for (size_t k = 0; k < tried; ++k) lightest.push(partners[k]);
      if (best.to == kNoSample) return;
      ContextDraft::Pack& b = (*packs)[best.to];
      Remove(best.give, &a, next);
      if (best.take != kNoSample) Remove(best.take, &b, next);
      Append(best.give, &b, next);
      if (best.take != kNoSample) Append(best.take, &a, next);
      for (const uint32_t p : {from, best.to}) {
        heaviest.push(LoadOf((*packs)[p], p));
        lightest.push(LoadOf((*packs)[p], p));
      }
    }
  }

  void TryPair(const ContextDraft::Pack& a, uint32_t to,
               const ContextDraft::Pack& b, const std::vector<uint32_t>& next,
               Swap* best) const {
    size_t of_a = 0;
    for (uint32_t i = a.first; i != kNoSample && of_a < kSamples;
         i = next[i], ++of_a) {
      if (a.first != a.last) Try(a, b, {to, i, kNoSample, 0}, best);
      size_t of_b = 0;
      for (uint32_t k = b.first; k != kNoSample && of_b < kSamples;
           k = next[k], ++of_b) {
        Try(a, b, {to, i, k, 0}, best);
      }
    }
  }

  const ContextLimits limits_;
  const uint32_t most_bits_;  // most_ranks is 2^most_bits_
  const size_t threads_;
  // Samples are numbered by their place here: the costliest, of these the
  // longest, come first.
  std::vector<uint32_t> order_;
  std::vector<uint32_t> lengths_;
  std::vector<int64_t> costs_;
  std::vector<uint8_t> bits_that_hold_;  // 2^bits ranks hold the sample
  std::vector<uint8_t> bits_after_;      // and each of those after it
};

}  // namespace

std::vector<ContextDraft> FillByContext(const std::vector<uint32_t>& lengths,
                                        const std::vector<int64_t>& costs,
                                        const ContextLimits& limits,
                                        absl::Span<const double> patience,
                                        size_t threads) {
  return Filler(lengths, costs, limits, threads).Fill(patience);
}

std::vector<ContextMicroBatch> TakePacks(const ContextDraft& draft) {
  std::vector<ContextMicroBatch> taken;
  for (const std::vector<ContextDraft::Pack>& packs : draft.micro_batches) {
    ContextMicroBatch& micro_batch = taken.emplace_back();
    for (const ContextDraft::Pack& pack : packs) {
      std::vector<uint32_t> samples;
      for (uint32_t i = pack.first; i != kNoSample; i = draft.next[i]) {
        samples.push_back(draft.order[i]);
      }
      std::sort(samples.begin(), samples.end());
      micro_batch.push_back({0, pack.ranks, std::move(samples)});
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

}  // namespace ballast
