#ifndef BALLAST_SERVER_SCHEDULE_COST_ORDER_H_
#define BALLAST_SERVER_SCHEDULE_COST_ORDER_H_

#include <cstdint>
#include <vector>

namespace ballast {

// The indexes of `costs`, the costliest first, and of equal costs the first in
// `costs` first. Costs are not negative. Linear in their number, unless that is
// small.
std::vector<uint32_t> CostliestFirst(const std::vector<int64_t>& costs);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_COST_ORDER_H_
