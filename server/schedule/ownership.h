#ifndef BALLAST_SERVER_SCHEDULE_OWNERSHIP_H_
#define BALLAST_SERVER_SCHEDULE_OWNERSHIP_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "server/schedule/balance.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/group_placement.h"
#include "server/schedule/sample_order.h"

namespace ballast {

// A sample of a step: which one, and how large.
struct ScheduledSample {
  uint64_t position = 0;
  SampleOrder::Sample sample;
  SampleSize size;
};

// What every micro-batch of a job has in common.
struct MicroBatchShape {
  uint32_t micro_batch = 1;  // samples of one
  uint32_t grid = 1;         // divides micro_batch
  std::vector<ModuleRanks> modules;
  v1::Balance balance;  // `cost` is that of the step at hand
  // Whether the modules share GPUs: then the sum of their costs is evened out,
  // else each module's own (BalanceJoint).
  bool colocated = true;
  uint32_t position_axes = 3;
};

// The data-parallel rank that reads sample `index` of a run of whole
// micro-batches: each falls, in order, into `grid` equal groups, and rank r of a
// module with dp d reads groups [r*grid/d, (r+1)*grid/d) (spec 1.11).
uint32_t ReaderOf(uint32_t index, const ModuleRanks& ranks,
                  const MicroBatchShape& shape);

// What each module's ranks read of such a run, for PlaceGroups.
std::vector<ModuleShards> MakeShards(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape);

// Who owns what in one micro-batch.
struct Ownership {
  // `grid` groups of indexes into the samples; rank r of a module with dp d owns
  // groups [r*grid/d, (r+1)*grid/d).
  Groups groups;
  std::vector<uint32_t> dummy_ranks;  // see AlignImages
};

// Decides for a window of whole micro-batches, `samples` in order of position.
// Pure. One Ownership a micro-batch:
//  - with delivery `off`, or where the heaviest group as read is within
//    balance.skip_below of the mean, groups are those of reading;
//  - else the balancer partitions all samples of the window into groups of even
//    joint cost. `refined` then numbers them so that few bytes move; `lpt` keeps
//    the reference's numbers (spec 1.5);
//  - balance.align_images is seen to in each micro-batch.
// Errors: INVALID_ARGUMENT (what the balancer refuses).
absl::StatusOr<std::vector<Ownership>> AssignOwners(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_OWNERSHIP_H_
