#ifndef BALLAST_TESTS_SERVER_SCHEDULE_LOAD_BOUND_H_
#define BALLAST_TESTS_SERVER_SCHEDULE_LOAD_BOUND_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

namespace ballast {

// A lower bound on the largest load of any partition of `costs` into `ranks`
// sets, tighter than the mean and the largest cost where few large samples
// share a rank. For each k: of the m costliest samples, m > k*ranks, s ranks
// hold more than k each, and those hold at least m - k*(ranks - s) of them
// together. The fullest of these ranks has at least their mean, even if they
// hold the cheapest ones. s is not known: the least value over all s counts.
inline double LoadBound(std::vector<double> costs, uint32_t ranks) {
  std::sort(costs.begin(), costs.end(), std::greater<double>());
  const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / ranks;
  double bound = std::max(mean, costs.empty() ? 0 : costs[0]);
  std::vector<double> sums(costs.size() + 1, 0);  // of the costliest
  std::partial_sum(costs.begin(), costs.end(), sums.begin() + 1);
  for (size_t k = 1; k < 8 && k * ranks < costs.size(); ++k) {
    const size_t step = std::max<size_t>(1, ranks / 64);
    for (size_t m = k * ranks + 1; m <= costs.size(); m += step) {
      double least = std::numeric_limits<double>::infinity();
      for (size_t s = 1; s <= ranks; ++s) {
        const size_t held = std::max(m - k * (ranks - s), (k + 1) * s);
        if (held > m) break;
        least = std::min(least, (sums[m] - sums[m - held]) / s);
      }
      bound = std::max(bound, least);
    }
  }
  return bound;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_SCHEDULE_LOAD_BOUND_H_
