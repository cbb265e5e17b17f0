#ifndef BALLAST_SERVER_SCHEDULE_FIXED_POINT_H_
#define BALLAST_SERVER_SCHEDULE_FIXED_POINT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace ballast {

// Costs as integers, so that sums do not depend on their order or the machine:
// all scaled by one power of two, at most 2^16, such that `bound`, which is at
// least their sum, stays below 2^60. Exact for costs that are integers, which
// patch and token counts are. Costs are finite and not negative.
std::vector<int64_t> FixedPoint(absl::Span<const double> costs, double bound);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_FIXED_POINT_H_
