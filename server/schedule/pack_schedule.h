#ifndef BALLAST_SERVER_SCHEDULE_PACK_SCHEDULE_H_
#define BALLAST_SERVER_SCHEDULE_PACK_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/schedule/balance.h"

namespace ballast {

// Packs: sets of samples whose lengths fit one sequence. A Groups is a list of
// packs; pack m*grid + g is group g of micro-batch m, so the number of packs is
// a multiple of the grid (and of the virtual pipeline's group of micro-batches).

struct PackLimits {
  // Most tokens of a pack: packing.max_tokens_per_rank * cp.
  uint64_t capacity = 0;
  // The number of packs is a multiple of this; at least 1.
  uint32_t multiple = 1;
};

// The reference, `dp_balanced` (spec 2.6): samples are packed greedily in order;
// a pack is closed when the next sample does not fit. Then packs are split from
// the last one on, each split moving a pack's last sample into a pack of its
// own at the end, until their number is a multiple. Unlike the reference there
// is never an empty pack, and the first pack may be split too. Members are in
// ascending order. Errors: INVALID_ARGUMENT (a sample longer than the capacity,
// named by its index; capacity or multiple 0; no sample), FAILED_PRECONDITION
// (fewer samples than the multiple wants packs).
absl::StatusOr<Groups> PackInOrder(const std::vector<uint32_t>& lengths,
                                   const PackLimits& limits);

// As many packs as PackInOrder makes, under the same limits, but filled so that
// the sums of squared lengths (what attention costs) are even, and ordered so
// that each `multiple` of packs, which run at the same time, are alike: the
// summed largest cost of each such set, which is what the step waits for, is
// never above PackInOrder's. Members are in ascending order. Errors: as
// PackInOrder.
absl::StatusOr<Groups> PackBalanced(const std::vector<uint32_t>& lengths,
                                    const PackLimits& limits);

// Sum over each set of `together` consecutive packs of the largest pack's sum of
// squared lengths.
uint64_t PackedTime(const std::vector<uint32_t>& lengths, const Groups& packs,
                    uint32_t together);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PACK_SCHEDULE_H_
