#ifndef BALLAST_SERVER_SCHEDULE_PACKED_OWNERSHIP_H_
#define BALLAST_SERVER_SCHEDULE_PACKED_OWNERSHIP_H_

#include <vector>

#include "absl/status/statusor.h"
#include "server/schedule/ownership.h"
#include "server/schedule/pack_schedule.h"

namespace ballast {

// How packing.mode `scheduled` fills its packs.
struct PackShape {
  // Most tokens of a pack, samples padded to multiples of `align`.
  uint64_t capacity = 0;
  uint32_t align = 1;
  // The number of micro-batches is a multiple of this (the virtual pipeline's
  // group); at least 1.
  uint32_t micro_batch_multiple = 1;
};

// As AssignOwners, for packing.mode `scheduled`: the samples of a whole step, in
// order of position, become packs, and each `grid` packs one micro-batch, so
// that the number of micro-batches follows from the lengths. `lpt` packs as the
// reference does (PackInOrder); `refined` evens out the costs (PackBalanced) and
// numbers the packs of a micro-batch so that few bytes move. Samples are never
// swapped for balance.align_images, which would change their lengths: ranks
// without an image are named as in need of a dummy. Errors: as PackInOrder,
// samples named by position.
absl::StatusOr<std::vector<Ownership>> AssignPackedOwners(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape,
    const PackShape& packs);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PACKED_OWNERSHIP_H_
