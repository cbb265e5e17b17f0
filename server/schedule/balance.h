#ifndef BALLAST_SERVER_SCHEDULE_BALANCE_H_
#define BALLAST_SERVER_SCHEDULE_BALANCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"

namespace ballast {

// A partition of samples into groups: the samples' indexes, group by group, in
// the order in which the group's owner holds them.
using Groups = std::vector<std::vector<uint32_t>>;

// The reference: equal-cardinality longest processing time first, exactly the
// rule of spec 1.4. Costs in descending order (ties: ascending index); each goes
// to the group with the least cost so far among those with fewer than
// costs.size()/groups members (ties: lowest group). Sums are made in that order
// in IEEE doubles, so every machine gives the same groups.
// Errors: INVALID_ARGUMENT (no groups; costs that the groups do not divide; a
// cost that is negative or not finite).
absl::StatusOr<Groups> BalanceLpt(absl::Span<const double> costs,
                                  uint32_t groups);

// Never worse than BalanceLpt, and no group is empty while there are as many
// costs as groups: starts from it and from an uncapped LPT (unless
// `equal_count`), then moves and swaps samples between groups while the largest
// load falls. Costs are scaled to integers first, so that no rounding depends
// on the machine. Group members are in ascending order of index.
absl::StatusOr<Groups> BalanceRefined(absl::Span<const double> costs,
                                      uint32_t groups, bool equal_count);

// By configuration. `lpt` is always of equal count.
absl::StatusOr<Groups> BalanceSamples(absl::Span<const double> costs,
                                      uint32_t groups,
                                      v1::Balance::Algorithm algorithm,
                                      bool equal_count);

// Cost of each group.
std::vector<double> GroupLoads(absl::Span<const double> costs,
                               const Groups& groups);

// No partition has a smaller largest load: the larger of the mean load and the
// largest cost.
double LoadLowerBound(absl::Span<const double> costs, uint32_t groups);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_BALANCE_H_
