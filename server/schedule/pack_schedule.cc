#include "server/schedule/pack_schedule.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

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

uint64_t Square(uint64_t n) { return n * n; }

uint64_t Cost(const std::vector<uint32_t>& lengths,
              const std::vector<uint32_t>& pack) {
  uint64_t cost = 0;
  for (const uint32_t i : pack) cost += Square(lengths[i]);
  return cost;
}

// Sorts by descending cost, so that packs that run at the same time have
// similar costs.
void SortByCost(const std::vector<uint32_t>& lengths, Groups* packs) {
  for (std::vector<uint32_t>& pack : *packs)
    std::sort(pack.begin(), pack.end());
  std::stable_sort(packs->begin(), packs->end(),
                   [&](const auto& a, const auto& b) {
                     return Cost(lengths, a) > Cost(lengths, b);
                   });
}

// Puts each sample, longest first, into the cheapest pack that has room.
// Returns no packs if some sample fits nowhere.
Groups FillByCost(const std::vector<uint32_t>& lengths, size_t packs,
                  uint64_t capacity) {
  std::vector<uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return lengths[a] > lengths[b];
  });
  // (cost, members, pack); members keep packs from staying empty.
  std::set<std::tuple<uint64_t, size_t, uint32_t>> by_cost;
  for (uint32_t p = 0; p < packs; ++p) by_cost.emplace(0, 0, p);
  std::vector<uint64_t> tokens(packs, 0);
  Groups filled(packs);
  for (const uint32_t i : order) {
    const auto found = std::find_if(
        by_cost.begin(), by_cost.end(), [&](const auto& candidate) {
          return tokens[std::get<2>(candidate)] + lengths[i] <= capacity;
        });
    if (found == by_cost.end()) return {};
    const auto [cost, members, pack] = *found;
    by_cost.erase(found);
    by_cost.emplace(cost + Square(lengths[i]), members + 1, pack);
    tokens[pack] += lengths[i];
    filled[pack].push_back(i);
  }
  return filled;
}

}  // namespace

uint64_t PackedTime(const std::vector<uint32_t>& lengths, const Groups& packs,
                    uint32_t together) {
  uint64_t time = 0;
  for (size_t first = 0; first < packs.size(); first += together) {
    uint64_t largest = 0;
    const size_t end = std::min(packs.size(), first + together);
    for (size_t p = first; p < end; ++p) {
      largest = std::max(largest, Cost(lengths, packs[p]));
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
                                    const PackLimits& limits) {
  BALLAST_ASSIGN_OR_RETURN(const Groups in_order, PackInOrder(lengths, limits));
  // The reference's packs, sorted by cost: never slower, since sorting
  // minimises the sum of each set's largest.
  Groups best = in_order;
  SortByCost(lengths, &best);
  Groups filled = FillByCost(lengths, in_order.size(), limits.capacity);
  if (filled.empty()) return best;
  SortByCost(lengths, &filled);
  if (PackedTime(lengths, filled, limits.multiple) <
      PackedTime(lengths, best, limits.multiple)) {
    best = std::move(filled);
  }
  return best;
}

}  // namespace ballast
