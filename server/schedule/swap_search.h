#ifndef BALLAST_SERVER_SCHEDULE_EXCHANGE_SEARCH_H_
#define BALLAST_SERVER_SCHEDULE_EXCHANGE_SEARCH_H_

#include <cstdint>
#include <vector>

#include "server/schedule/balance.h"

namespace ballast {

// Lowers the largest load of `groups` by exchanges: again and again, the
// heaviest group gives one or two samples to a lighter one and takes one, two
// or (unless `keep_counts`) none for them, whichever leaves the larger of the
// two loads least. Ends when no exchange helps, when the largest load is within
// 1/4096 of its lower bound, or after a stated number of exchanges. Integers
// alone, so equal on every machine. Members of each group come back in ascending
// order. Costs are not negative and their sum is below 2^62.
Groups ImproveByExchange(const std::vector<int64_t>& costs, Groups groups,
                         bool keep_counts);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_EXCHANGE_SEARCH_H_
