#include "server/schedule/fixed_point.h"

#include <algorithm>
#include <cmath>

namespace ballast {

std::vector<int64_t> FixedPoint(absl::Span<const double> costs, double bound) {
  int exponent = 0;
  std::frexp(bound, &exponent);  // bound < 2^exponent
  const int shift = std::min(16, 60 - exponent);
  // A power of 2: the product is exact.
  const double scale = std::ldexp(1.0, shift);
  std::vector<int64_t> fixed;
  fixed.reserve(costs.size());
  for (const double cost : costs) {
    fixed.push_back(std::llround(cost * scale));
  }
  return fixed;
}

}  // namespace ballast
