#ifndef BALLAST_SERVER_SCHEDULE_SWAP_SEARCH_H_
#define BALLAST_SERVER_SCHEDULE_SWAP_SEARCH_H_

#include <cstdint>
#include <vector>

#include "server/schedule/balance.h"

namespace ballast {

// Lowers the largest load of `groups` by swaps: repeatedly, the heaviest group
// gives one or two samples to a lighter one and takes one, two or (unless
// `keep_counts`) none in return, choosing the swap that minimises the larger of
// the two loads. Ends when no swap helps, when the largest load is within
// 1/4096 of its lower bound or at most `enough`, or after 64 swaps a group on
// average. Uses only integers, so the result is the same on every machine.
// Members of a group are returned in ascending order. Costs are not negative
// and their sum is below 2^62.
Groups ImproveBySwaps(const std::vector<int64_t>& costs, Groups groups,
                      bool keep_counts, int64_t enough = 0);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_SWAP_SEARCH_H_
