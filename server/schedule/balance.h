#ifndef BALLAST_SERVER_SCHEDULE_BALANCE_H_
#define BALLAST_SERVER_SCHEDULE_BALANCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/schedule/assignment.h"

namespace ballast {

// The reference: longest processing time first with groups of equal count, the
// rule of Megatron-Bridge. Costs are taken in descending order (ties: ascending
// index); each goes to the group with the least cost so far among the groups
// with fewer than costs.size()/groups members (ties: lowest group). Sums are
// computed in that order in IEEE doubles, so every machine gives the same
// groups. Errors: INVALID_ARGUMENT (no groups; costs that the groups do not
// divide; a cost that is negative or not finite).
absl::StatusOr<Groups> BalanceLpt(absl::Span<const double> costs,
                                  uint32_t groups);

// Never worse than BalanceLpt: starts from the better of BalanceLpt and (unless
// `equal_count`) an LPT without a cap on counts, then moves and swaps samples
// between groups while the largest load falls. No group is empty if there are
// at least as many costs as groups. Costs are first scaled to integers, so that
// no rounding depends on the machine. Members of a group are in ascending
// order. Errors: as BalanceLpt; without `equal_count` any number of costs is
// accepted.
absl::StatusOr<Groups> BalanceRefined(absl::Span<const double> costs,
                                      uint32_t groups, bool equal_count);

// Like BalanceRefined in less time: ends within 1/1024 of the lower bound, and
// may be worse than BalanceLpt where swaps do not reach that. Errors: as
// BalanceRefined.
absl::StatusOr<Groups> BalanceQuickly(absl::Span<const double> costs,
                                      uint32_t groups, bool equal_count);

// Calls BalanceLpt or BalanceRefined, as `algorithm` says; `lpt` ignores
// `equal_count`.
absl::StatusOr<Groups> BalanceSamples(absl::Span<const double> costs,
                                      uint32_t groups,
                                      v1::Balance::Algorithm algorithm,
                                      bool equal_count);

// Summed cost of each group.
std::vector<double> GroupLoads(absl::Span<const double> costs,
                               const Groups& groups);

// Lower bound on the largest load of any partition: the larger of the mean load
// and the largest cost.
double LoadLowerBound(absl::Span<const double> costs, uint32_t groups);

// Checks the input of a balancer. Errors: INVALID_ARGUMENT (no groups; with
// `equal_count` a number of costs that is not a multiple of the groups; a cost
// that is negative or not finite).
absl::Status CheckBalanceInput(absl::Span<const double> costs, uint32_t groups,
                               bool equal_count);

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

#endif  // BALLAST_SERVER_SCHEDULE_BALANCE_H_
