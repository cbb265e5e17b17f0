#ifndef BALLAST_SERVER_SCHEDULE_BALANCE_JOINT_H_
#define BALLAST_SERVER_SCHEDULE_BALANCE_JOINT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/schedule/balance.h"

namespace ballast {

// Balances two modules whose ranks wait for each other after each module: the
// time is the largest vision load plus the largest language load, not the
// largest sum of both (balance.objective `phases`). Both costs must be in the
// same unit.
//
// Starts from the better of BalanceRefined over the summed costs and, if the
// counts divide, BalanceLpt over them; then swaps samples between the heaviest
// group of either module and other groups while the objective falls. So it is
// never worse than either of them by this objective. Deterministic: costs are
// first scaled to integers. Members of a group are in ascending order; no group
// is empty if there are at least as many samples as groups. Work is bounded: at
// most 4 million swaps are evaluated.
// Errors: as BalanceRefined; INVALID_ARGUMENT (lists of different lengths).
absl::StatusOr<Groups> BalanceJoint(absl::Span<const double> vision,
                                    absl::Span<const double> language,
                                    uint32_t groups, bool equal_count);

// The objective: largest vision load plus largest language load.
double JointLoad(absl::Span<const double> vision,
                 absl::Span<const double> language, const Groups& groups);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_BALANCE_JOINT_H_
