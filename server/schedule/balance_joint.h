#ifndef BALLAST_SERVER_SCHEDULE_BALANCE_JOINT_H_
#define BALLAST_SERVER_SCHEDULE_BALANCE_JOINT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/schedule/balance.h"

namespace ballast {

// Balances two modules that do not share GPUs: each waits for its own heaviest
// rank, so what counts is the largest vision load plus the largest language
// load, not the largest sum of both. Costs must be in one unit.
//
// Starts from whichever is better of BalanceRefined over the summed costs and,
// where counts divide, BalanceLpt over them; then exchanges samples between the
// heaviest group of either module and others while the objective falls. So it is
// never worse than either by this objective. Deterministic: the costs are scaled
// to integers first. Members are in ascending order; no group is empty while
// there are as many samples as groups. Bounded work: at most 4 million exchanges
// are looked at.
// Errors: as BalanceRefined; INVALID_ARGUMENT (lists of different lengths).
absl::StatusOr<Groups> BalanceJoint(absl::Span<const double> vision,
                                    absl::Span<const double> language,
                                    uint32_t groups, bool equal_count);

// The objective: largest vision load plus largest language load.
double JointLoad(absl::Span<const double> vision,
                 absl::Span<const double> language, const Groups& groups);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_BALANCE_JOINT_H_
