#ifndef BALLAST_SERVER_SCHEDULE_CONTEXT_PACKS_H_
#define BALLAST_SERVER_SCHEDULE_CONTEXT_PACKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/schedule/balance.h"
#include "server/schedule/context_filler.h"

namespace ballast {

// Dynamic context parallelism: each pack is shared by as many ranks as its
// samples need. Pure functions.

// Packs the samples of a step. The time that is made small is the sum, over the
// micro-batches, of the largest cost that a rank has: a pack's summed costs
// divided by its ranks. Of the plans that are found within 5 % of the least
// time, the one of which the fewest keys move between ranks
// (GetContextFigures). PackStatic's plan is one of them, so the time is at most
// 1.05 times the time of static context parallelism, where that is possible.
// Deterministic.
//
// `lengths`: tokens with padding. `costs`: finite, not negative. Errors:
// INVALID_ARGUMENT (a sample that no pack holds, named by its index; limits
// that contradict each other; no sample), FAILED_PRECONDITION (fewer samples
// than packs).
absl::StatusOr<std::vector<ContextMicroBatch>> PackByContext(
    const std::vector<uint32_t>& lengths, absl::Span<const double> costs,
    const ContextLimits& limits);

// PackBalanced's packs, each shared by most_ranks ranks. A sample counts as one
// sequence. Errors: as PackBalanced.
absl::StatusOr<std::vector<ContextMicroBatch>> PackStatic(
    const std::vector<uint32_t>& lengths, const ContextLimits& limits);

// The samples of each rank in each micro-batch, as Megatron-Core lists them.
std::vector<Groups> ListByRank(const std::vector<ContextMicroBatch>& packs,
                               uint32_t ranks);

// What packs cost a trainer, whoever made them.
struct ContextFigures {
  // The sum over micro-batches of the busiest rank's attention work: of each
  // sample its squared length divided by the ranks that share it.
  double busiest = 0;
  double mean = 0;  // of all ranks: the least that is possible
  // Tokens whose keys and values each other rank of the pack receives, once a
  // receiver.
  uint64_t keys_moved = 0;
  // The most tokens that a rank has in a micro-batch.
  double most_tokens = 0;
};

// `by_rank`: as ListByRank; samples below lengths.size().
ContextFigures GetContextFigures(const std::vector<uint32_t>& lengths,
                                 const std::vector<Groups>& by_rank);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_CONTEXT_PACKS_H_
