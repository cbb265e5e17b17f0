#include "server/schedule/shared_bound.h"

#include <algorithm>
#include <cstddef>

#include "server/schedule/cost_order.h"

namespace ballast {
namespace {

// The largest number k of large samples of a rank.
constexpr size_t kMaxShared = 7;

// The least mean load of s ranks, over s up to m - k * ranks, that hold the
// cheapest m - k * (ranks - s) of the m costliest samples. `sums` are those of
// the costliest samples.
int64_t LeastMean(const std::vector<int64_t>& sums, size_t m, size_t k,
                  size_t ranks) {
  const size_t excess = m - k * ranks;
  const auto mean = [&](size_t s) {
    return (sums[m] - sums[m - excess - k * s]) / static_cast<int64_t>(s);
  };
  // The held sum is convex in s, so the mean falls to its least value and then
  // rises: it rises from s on where k more samples, the next costlier ones, are
  // at least the mean.
  size_t first = 1;
  size_t last = excess;
  while (first < last) {
    const size_t s = first + (last - first) / 2;
    const size_t end = m - excess - k * s;
    if (sums[end] - sums[end - k] >= mean(s)) {
      last = s;
    } else {
      first = s + 1;
    }
  }
  return mean(first);
}

}  // namespace

int64_t SharedBound(const std::vector<int64_t>& costs, uint32_t ranks,
                    int64_t known) {
  if (costs.size() <= ranks) return 0;
  std::vector<int64_t> sums = {0};  // of the costliest
  sums.reserve(costs.size() + 1);
  for (const uint32_t i : CostliestFirst(costs)) {
    sums.push_back(sums.back() + costs[i]);
  }
  int64_t bound = 0;
  const size_t step = std::max(1u, ranks / 64);
  for (size_t k = 1; k <= kMaxShared; ++k) {
    const size_t last = std::min<size_t>(costs.size(), (k + 1) * ranks);
    for (size_t m = k * ranks + 1; m <= last; m += step) {
      bound = std::max(bound, LeastMean(sums, m, k, ranks));
    }
  }
  return bound > known ? bound : 0;
}

}  // namespace ballast
