#ifndef BALLAST_SERVER_SCHEDULE_FIXED_POINT_H_
#define BALLAST_SERVER_SCHEDULE_FIXED_POINT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace ballast {

// Converts costs to integers, whose sums depend neither on their order nor on
// the machine. All are scaled by the same power of two, at most 2^16, such that
// `bound`, which is at least their sum, stays below 2^60. Exact for integer
// costs, such as patch and token counts. Costs are finite and not negative.
std::vector<int64_t> FixedPoint(absl::Span<const double> costs, double bound);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_FIXED_POINT_H_
