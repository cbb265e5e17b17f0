#ifndef BALLAST_SERVER_SCHEDULE_CONTEXT_REFERENCE_H_
#define BALLAST_SERVER_SCHEDULE_CONTEXT_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/schedule/balance.h"

namespace ballast {

// The reference for dynamic context parallelism: the groups of Megatron-Core
// 0.19.2's BalancedCPScheduler (hybrid_context_parallel), its arithmetic in
// doubles included, for comparison. Entry [g][r] lists the samples that rank r
// of the DPxCP ranks computes in group g, one after the other, each together
// with all ranks that list it. Ranks of a sample need not be a group that
// Megatron-Core has made for its collectives: it makes those that begin at
// multiples of their size.
//
// `lengths`: tokens of each sample, at least 1. `tokens_a_rank`:
// max_seqlen_per_dp_cp_rank. Errors: INVALID_ARGUMENT (no sample, no rank, a
// length or tokens_a_rank of 0), FAILED_PRECONDITION (the reference fails, or
// loses samples, on these lengths: one needs more ranks than there are, or
// ranks without a sample cannot be given some).
absl::StatusOr<std::vector<Groups>> ReferenceContextGroups(
    const std::vector<uint32_t>& lengths, uint32_t ranks,
    uint64_t tokens_a_rank);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_CONTEXT_REFERENCE_H_
