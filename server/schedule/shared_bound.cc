#include "server/schedule/shared_bound.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>

namespace ballast {
namespace {

// The largest number k of large samples of a rank.
constexpr size_t kMaxShared = 7;

// Whether k + 1 of the costs at stake may exceed the known bound. Reorders
// `costs`; linear.
bool MayExceed(std::vector<int64_t>* costs, uint32_t ranks, int64_t known) {
  size_t end = costs->size();
  for (size_t k = kMaxShared; k > 0; --k) {
    if (k * ranks >= end) continue;
    const auto at = costs->begin() + k * ranks;
    std::nth_element(costs->begin(), at, costs->begin() + end,
                     std::greater<int64_t>());
    if (*at > known / static_cast<int64_t>(k + 1)) return true;
    end = k * ranks + 1;
  }
  return false;
}

}  // namespace

int64_t SharedBound(std::vector<int64_t> costs, uint32_t ranks, int64_t known) {
  if (!MayExceed(&costs, ranks, known)) return 0;
  int64_t bound = 0;
  std::sort(costs.begin(), costs.end(), std::greater<int64_t>());
  std::vector<int64_t> sums(costs.size() + 1, 0);  // of the costliest
  std::partial_sum(costs.begin(), costs.end(), sums.begin() + 1);
  const size_t step = std::max(1u, ranks / 64);
  for (size_t k = 1; k <= kMaxShared; ++k) {
    const size_t last = std::min<size_t>(costs.size(), (k + 1) * ranks);
    for (size_t m = k * ranks + 1; m <= last; m += step) {
      const size_t excess = m - k * ranks;
      int64_t least = std::numeric_limits<int64_t>::max();
      for (size_t s = excess; s > 0; s = s * 7 / 8) {
        const size_t held = excess + k * s;
        least = std::min<int64_t>(least, (sums[m] - sums[m - held]) / s);
      }
      bound = std::max(bound, least);
    }
  }
  return bound > known ? bound : 0;
}

}  // namespace ballast
