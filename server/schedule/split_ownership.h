#ifndef BALLAST_SERVER_SCHEDULE_SPLIT_OWNERSHIP_H_
#define BALLAST_SERVER_SCHEDULE_SPLIT_OWNERSHIP_H_

#include <cstdint>
#include <vector>

#include "proto/schedule/delivery_rule.h"
#include "server/schedule/ownership.h"

namespace ballast {

// Whether vision's owners are chosen apart from language's: balance.placement
// is `split`, and samples may move at all.
bool IsSplit(const MicroBatchShape& shape);

// Chooses the vision owners of one micro-batch by PlaceVision, from its
// language owners: fills vision_groups and dummy_ranks. Samples without images
// stay with their language owners. IsSplit(shape); both modules have `grid`
// ranks.
void SplitOwners(const std::vector<ScheduledSample>& samples,
                 const MicroBatchShape& shape, Ownership* ownership);

// Image tokens of a sample: one embedding each.
int64_t EmbeddingTokens(const SampleSize& size, const MicroBatchShape& shape);

// The servers of vision's ranks, by which embeddings move within a server or
// between servers.
const ServerOfRank& VisionServers(const MicroBatchShape& shape);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_SPLIT_OWNERSHIP_H_
