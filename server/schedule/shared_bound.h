#ifndef BALLAST_SERVER_SCHEDULE_SHARED_BOUND_H_
#define BALLAST_SERVER_SCHEDULE_SHARED_BOUND_H_

#include <cstdint>
#include <vector>

namespace ballast {

// A lower bound on the largest load of any partition of `costs` among `ranks`,
// where few large samples share a rank; 0 if it is at most `known`, a bound
// already known, such as the mean load.
//
// Of the m costliest samples, m > k * ranks, some ranks hold more than k each.
// If s ranks do, they hold at least m - k * (ranks - s) of the m together, and
// the fullest has at least their mean, even if theirs are the cheapest of the
// m. The number s is not known, so the least value counts; the bound is the
// largest over k up to 7 and m, in steps. Pure; costs are not negative.
int64_t SharedBound(const std::vector<int64_t>& costs, uint32_t ranks,
                    int64_t known);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_SHARED_BOUND_H_
