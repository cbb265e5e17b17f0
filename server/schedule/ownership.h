#ifndef BALLAST_SERVER_SCHEDULE_OWNERSHIP_H_
#define BALLAST_SERVER_SCHEDULE_OWNERSHIP_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/block/block_plan.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "server/schedule/balance.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/group_order.h"
#include "server/schedule/pack_schedule.h"
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
  uint32_t micro_batch = 1;          // samples a micro-batch
  uint32_t grid = 1;                 // divides micro_batch
  std::vector<ModuleRanks> modules;  // in the order of ModuleKinds()
  std::vector<ModuleCost> costs;     // of the present step (GetModuleCosts)
  v1::Balance balance;               // without costs
  BlockGeometry geometry;
  uint32_t patches_a_token = 4;  // model.merge squared
  bool colocated = true;         // topology.colocated
};

// The module's coefficients; zeros if the shape has none for it.
const ModuleCost& FindCost(v1::Module module, const MicroBatchShape& shape);

// The data-parallel rank that reads sample `index` of consecutive whole
// micro-batches: each is divided, in order, into `grid` equal groups, and rank
// r of a module with dp d reads groups [r*grid/d, (r+1)*grid/d).
uint32_t GetReader(uint32_t index, const ModuleRanks& ranks,
                   const MicroBatchShape& shape);

// The shards that each module's ranks read of the samples, for NumberGroups;
// language's alone if the modules are split apart.
std::vector<ModuleShards> MakeShards(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape);

// The owners of the samples of one micro-batch.
struct Ownership {
  struct OfModule {
    // Only for an encoder whose owners are chosen separately: rank r owns
    // groups[r].
    Groups groups;
    // Only for an encoder: ranks that must add a dummy (sample_finder.h).
    std::vector<uint32_t> dummy_ranks;
  };
  // n groups of indexes into the samples; rank r of a module with dp d owns
  // groups [r*n/d, (r+1)*n/d), unless the module has its own. n is the grid,
  // or BalancedGroups.
  Groups groups;
  // Only with packing.dynamic_cp: the ranks of language that share each group's
  // samples: the group's own and those that follow it, whose groups are empty.
  std::vector<uint32_t> pack_ranks;
  std::vector<OfModule> modules;  // as MicroBatchShape::modules
};

// Assigns owners in a window of whole micro-batches; `samples` are in order of
// position. Pure. Returns one Ownership for each micro-batch:
//  - With delivery `off`, or if the heaviest group as read exceeds the mean by
//    at most balance.skip_below, the groups stay as read.
//  - Otherwise the balancer partitions all samples of the window by
//    balance.objective. `refined` then numbers the groups so that few bytes
//    move; `lpt` always balances the sum of all modules and keeps the
//    reference's numbering.
//  - balance.align_images is then enforced in each micro-batch.
//  - With balance.placement `split`, the above balances language alone, leaves
//    it as read if it is even already, and the encoders' owners are then chosen
//    in each micro-batch (encoder_placement.h). Modules that are split apart
//    are each divided among their own ranks alone.
// Errors: INVALID_ARGUMENT (as the balancer).
absl::StatusOr<std::vector<Ownership>> AssignOwners(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape);

// The packs that packing.mode `scheduled` fills.
struct PackShape {
  // Largest number of tokens of a pack, its samples padded to multiples of
  // `align`.
  uint64_t capacity = 0;
  uint32_t align = 1;
  // The number of micro-batches is a multiple of this
  // (packing.virtual_pipeline_group); at least 1.
  uint32_t micro_batch_multiple = 1;
  // Above 1: the most ranks that share a pack (packing.dynamic_cp).
  uint32_t dynamic_cp = 1;
  // packing.encoder_slack; 0 with placement `split` and without delivery.
  double encoder_slack = 0;
};

// AssignOwners for packing.mode `scheduled`: the samples of a whole step, in
// order of position, become packs, and each `grid` packs one micro-batch, so
// that the number of micro-batches follows from the lengths. `lpt` packs like
// the reference (PackInOrder); `refined` balances the costs (PackBalanced,
// EvenEncoders) and numbers the packs of a micro-batch so that few bytes move.
// balance.align_images does not swap samples here, because that would change
// the packs' lengths: ranks without an image get a dummy. With
// balance.placement `split` the packs are language's, and the encoders' owners
// are chosen in each micro-batch, images for every rank included.
// With packs.dynamic_cp above 1 packs come from PackByContext, by
// balance.cost.language, or squared lengths where that is 0. Encoders, with
// placement `split` alone, begin with the ranks of a pack in turn.
// Errors: as PackInOrder or PackByContext, naming samples by position.
absl::StatusOr<std::vector<Ownership>> AssignPackedOwners(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape,
    const PackShape& packs);

// AssignPackedOwners for packs that are given: sample i is in pack
// `pack_of[i]`, and pack p is group p % grid of micro-batch p / grid. Nothing
// is balanced but the encoders' owners, as there. Every number up to the
// largest has a pack. Errors: INVALID_ARGUMENT (the number of packs is
// no multiple of the grid times packs.micro_batch_multiple; a pack holds more
// than packs.capacity).
absl::StatusOr<std::vector<Ownership>> AssignGivenPacks(
    const std::vector<ScheduledSample>& samples,
    const std::vector<uint32_t>& pack_of, const MicroBatchShape& shape,
    const PackShape& packs);

// Whether encoders' owners are chosen separately from language's:
// balance.placement is `split`, and the delivery lets samples move.
bool IsSplit(const MicroBatchShape& shape);

// Whether, in addition, the modules have ranks of their own
// (topology.colocated false), so that every embedding moves.
bool IsApart(const MicroBatchShape& shape);

// Language's ranks, which a job with split placement has.
const ModuleRanks& GetLanguage(const MicroBatchShape& shape);

// The number of groups that AssignOwners makes of a micro-batch: the grid, or
// language's ranks if the modules are split apart.
uint32_t BalancedGroups(const MicroBatchShape& shape);

// Embeddings that an encoder of `media` makes of a sample: one for each of its
// placeholder tokens.
int64_t EmbeddingTokens(const SampleSize& size, Media media,
                        const MicroBatchShape& shape);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_OWNERSHIP_H_
