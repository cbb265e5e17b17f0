#ifndef BALLAST_SERVER_SCHEDULE_PACKED_OWNERSHIP_H_
#define BALLAST_SERVER_SCHEDULE_PACKED_OWNERSHIP_H_

#include <vector>

#include "absl/status/statusor.h"
#include "server/schedule/ownership.h"
#include "server/schedule/pack_schedule.h"

namespace ballast {

// The packs that packing.mode `scheduled` fills.
struct PackShape {
  // Largest number of tokens of a pack, its samples padded to multiples of
  // `align`.
  uint64_t capacity = 0;
  uint32_t align = 1;
  // The number of micro-batches is a multiple of this
  // (packing.virtual_pipeline_group); at least 1.
  uint32_t micro_batch_multiple = 1;
};

// AssignOwners for packing.mode `scheduled`: the samples of a whole step, in
// order of position, become packs, and each `grid` packs one micro-batch, so
// that the number of micro-batches follows from the lengths. `lpt` packs like
// the reference (PackInOrder); `refined` balances the costs (PackBalanced) and
// numbers the packs of a micro-batch so that few bytes move.
// balance.align_images does not swap samples here, because that would change
// the packs' lengths: ranks without an image get a dummy. With
// balance.placement `split` the packs are language's, and vision's owners are
// chosen in each micro-batch (SplitOwners), images for every rank included.
// Errors: as PackInOrder, naming samples by position.
absl::StatusOr<std::vector<Ownership>> AssignPackedOwners(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape,
    const PackShape& packs);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PACKED_OWNERSHIP_H_
