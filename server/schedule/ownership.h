#ifndef BALLAST_SERVER_SCHEDULE_OWNERSHIP_H_
#define BALLAST_SERVER_SCHEDULE_OWNERSHIP_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/block/payload_bytes.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "server/schedule/balance.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/group_numbering.h"
#include "server/schedule/sample_order.h"

namespace ballast {

// A sample of a step, with its size.
struct ScheduledSample {
  uint64_t position = 0;
  SampleOrder::Sample sample;
  SampleSize size;
};

// The settings that all micro-batches of a job share.
struct MicroBatchShape {
  uint32_t micro_batch = 1;  // samples a micro-batch
  uint32_t grid = 1;         // divides micro_batch
  std::vector<ModuleRanks> modules;
  v1::Balance balance;  // `cost` applies to the present step
  BlockGeometry geometry;
  uint32_t patches_a_token = 4;  // model.merge squared
};

// The data-parallel rank that reads sample `index` of consecutive whole
// micro-batches: each is divided, in order, into `grid` equal groups, and rank
// r of a module with dp d reads groups [r*grid/d, (r+1)*grid/d).
uint32_t ReaderOf(uint32_t index, const ModuleRanks& ranks,
                  const MicroBatchShape& shape);

// The shards that each module's ranks read of the samples, for NumberGroups.
std::vector<ModuleShards> MakeShards(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape);

// The owners of the samples of one micro-batch.
struct Ownership {
  // `grid` groups of indexes into the samples; rank r of a module with dp d
  // owns groups [r*grid/d, (r+1)*grid/d).
  Groups groups;
  // Only if vision's owners are chosen apart: rank r of vision owns
  // vision_groups[r], and `groups` are language's alone.
  Groups vision_groups;
  std::vector<uint32_t> dummy_ranks;  // as AlignImages returns them
};

// Assigns owners in a window of whole micro-batches; `samples` are in order of
// position. Pure. Returns one Ownership for each micro-batch:
//  - With delivery `off`, or if the heaviest group as read exceeds the mean by
//    at most balance.skip_below, the groups stay as read.
//  - Otherwise the balancer partitions all samples of the window by
//    balance.objective. `refined` then numbers the groups so that few bytes
//    move; `lpt` always balances the sum of both modules and keeps the
//    reference's numbers.
//  - balance.align_images is then enforced in each micro-batch.
//  - With balance.placement `split`, the above balances language alone, leaves
//    it as read if it is even already, and vision's owners are then chosen in
//    each micro-batch (SplitOwners).
// Errors: INVALID_ARGUMENT (as the balancer).
absl::StatusOr<std::vector<Ownership>> AssignOwners(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_OWNERSHIP_H_
