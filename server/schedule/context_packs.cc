#include "server/schedule/context_packs.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/pack_schedule.h"

namespace ballast {
namespace {

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

// The time of a plan, and the keys that it moves.
struct PlanFigures {
  int64_t time = 0;
  uint64_t keys_moved = 0;
};

PlanFigures Measure(const ContextDraft& plan) {
  PlanFigures figures;
  for (const std::vector<ContextDraft::Pack>& micro_batch :
       plan.micro_batches) {
    int64_t largest = 0;
    for (const ContextDraft::Pack& pack : micro_batch) {
      figures.keys_moved += pack.tokens * (pack.ranks - 1);
      largest = std::max(largest, pack.load());
    }
    figures.time += largest;
  }
  return figures;
}

PlanFigures Measure(const std::vector<uint32_t>& lengths,
                    const std::vector<int64_t>& costs,
                    const std::vector<ContextMicroBatch>& packs) {
  ContextDraft sums;
  for (const ContextMicroBatch& micro_batch : packs) {
    std::vector<ContextDraft::Pack>& of_batch =
        sums.micro_batches.emplace_back();
    for (const ContextPack& pack : micro_batch) {
      ContextDraft::Pack& sum = of_batch.emplace_back();
      sum.ranks = pack.ranks;
      for (const uint32_t i : pack.samples) {
        sum.cost += costs[i];
        sum.tokens += lengths[i];
      }
    }
  }
  return Measure(sums);
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
  // To start threads takes as long as to plan a small step.
  const size_t threads = lengths.size() < 1 << 15 ? 1 : 4;
  absl::StatusOr<std::vector<ContextMicroBatch>> as_static;
  std::vector<ContextDraft> plans;
  RunAll(2, threads, [&](size_t k) {
    if (k == 0) {
      as_static = PackStatic(lengths, limits);
    } else {
      // Each value gives other widths where ranks wait for the longest samples.
      plans =
          FillByContext(lengths, fixed, limits, {0, 0.6, 0.8, 0.9, 1}, threads);
    }
    return absl::OkStatus();
  }).IgnoreError();
  if (plans.empty() && !as_static.ok()) return as_static.status();
  std::vector<PlanFigures> figures;
  if (as_static.ok()) {
    figures.push_back(Measure(lengths, fixed, *as_static));
  }
  const size_t first = figures.size();  // of the filler's plans
  for (const ContextDraft& plan : plans) figures.push_back(Measure(plan));
  int64_t best = figures[0].time;
  for (const PlanFigures& plan : figures) best = std::min(best, plan.time);
  const int64_t bound = best + best / 20;
  size_t chosen = figures.size();
  for (size_t p = 0; p < figures.size(); ++p) {
    if (figures[p].time > bound) continue;
    if (chosen == figures.size() ||
        std::make_pair(figures[p].keys_moved, figures[p].time) <
            std::make_pair(figures[chosen].keys_moved, figures[chosen].time)) {
      chosen = p;
    }
  }
  if (chosen < first) return *std::move(as_static);
  return TakePacks(plans[chosen - first]);
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
