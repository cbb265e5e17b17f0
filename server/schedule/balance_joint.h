#ifndef BALLAST_SERVER_SCHEDULE_BALANCE_JOINT_H_
#define BALLAST_SERVER_SCHEDULE_BALANCE_JOINT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/schedule/balance.h"

namespace ballast {

// Balances modules whose ranks wait for each other after each module: the time
// is the sum of each module's largest load, not the largest sum of all
// (balance.objective `phases`). costs[m][i] is the cost of sample i for module
// m, all in the same unit; at least one module.
//
// Starts from the better of BalanceRefined over the summed costs and, if the
// counts divide, BalanceLpt over them; then swaps samples between the heaviest
// group of a module and other groups while the objective falls. So it is
// never worse than either of them by this objective. Deterministic: costs are
// first scaled to integers. Members of a group are in ascending order; no group
// is empty if there are at least as many samples as groups. Work is bounded: at
// most 4 million swaps are evaluated.
// Errors: as BalanceRefined; INVALID_ARGUMENT (lists of different lengths).
absl::StatusOr<Groups> BalanceJoint(
    const std::vector<std::vector<double>>& costs, uint32_t groups,
    bool equal_count);

// The objective: the sum of each module's largest load.
double JointLoad(const std::vector<std::vector<double>>& costs,
                 const Groups& groups);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_BALANCE_JOINT_H_
