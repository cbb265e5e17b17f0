#ifndef BALLAST_SERVER_SCHEDULE_PACK_SCHEDULE_H_
#define BALLAST_SERVER_SCHEDULE_PACK_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/schedule/balance.h"

namespace ballast {

// A pack is a set of samples that fit one sequence. Here a Groups is a list of
// packs: pack m*grid + g is group g of micro-batch m. The number of packs is a
// multiple of the grid times packing.virtual_pipeline_group.

struct PackLimits {
  // Largest number of tokens of a pack: packing.max_tokens_per_rank * cp.
  uint64_t capacity = 0;
  // The number of packs is a multiple of this; at least 1.
  uint32_t multiple = 1;
};

// The reference, Megatron's `dp_balanced`: samples are packed greedily in
// order; a pack is closed when the next sample does not fit. Then packs are
// split, starting with the last: each split moves a pack's last sample into a
// new pack at the end, until the number of packs is a multiple. Unlike in the
// reference no pack is ever empty, and the first pack may be split, too.
// Members of a pack are in ascending order. Errors: INVALID_ARGUMENT (a sample
// longer than the capacity, named by its index; capacity or multiple 0; no
// sample), FAILED_PRECONDITION (fewer samples than packs are needed).
absl::StatusOr<Groups> PackInOrder(const std::vector<uint32_t>& lengths,
                                   const PackLimits& limits);

// Makes as many packs as PackInOrder, under the same limits, but fills them so
// that their sums of `squares` (the cost of attention) are even, and orders
// them so that each `multiple` consecutive packs, which run at the same time,
// have similar costs. `squares`: of each sample the squared length, or their
// sum over the sequences of a pair. PackedTime is never above the one of
// PackInOrder. Members of a pack are in ascending order. Errors: as
// PackInOrder.
absl::StatusOr<Groups> PackBalanced(const std::vector<uint32_t>& lengths,
                                    const std::vector<uint64_t>& squares,
                                    const PackLimits& limits);

// Moves samples between packs that run together, so that the largest load of an
// encoder in each such set falls: the `multiple` packs from each multiple of it
// on. `loads`: what each sample costs the encoders, in fixed point, not
// negative. Limits hold, no pack becomes empty, and the largest sum of
// `squares` of a set grows by at most `slack` of itself. Members of a pack stay
// in ascending order. Takes O(packs · members · log(members)).
void EvenEncoders(const std::vector<uint32_t>& lengths,
                  const std::vector<uint64_t>& squares,
                  const std::vector<int64_t>& loads, const PackLimits& limits,
                  double slack, Groups* packs);

// The time of a step in units of squared tokens: the sum, over each `together`
// consecutive packs, of the largest pack's sum of `squares`.
uint64_t PackedTime(const std::vector<uint64_t>& squares, const Groups& packs,
                    uint32_t together);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PACK_SCHEDULE_H_
