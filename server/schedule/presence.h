#ifndef BALLAST_SERVER_SCHEDULE_PRESENCE_H_
#define BALLAST_SERVER_SCHEDULE_PRESENCE_H_

#include <cstdint>
#include <vector>

#include "server/schedule/balance.h"

namespace ballast {

// Ensures that every rank of an encoder owns a sample with media for it, or
// that none does. A rank without one would not take part in the collectives
// inside the encoder, and all others would wait for it forever.
//
// Rank r owns groups [r*groups_per_rank, (r+1)*groups_per_rank). While one rank
// has no media and another has at least two samples with media, one of these is
// swapped with a sample of the first rank: the pair that minimises the larger
// cost of the two groups (ties: lowest indexes). Group sizes do not change,
// except that a rank without samples receives the sample with media and gives
// nothing. Other groups are not changed. Deterministic.
//
// Returns the ranks that still have no media, ascending, which must add a dummy
// because there are fewer samples with media than ranks. Empty if no sample has
// media.
std::vector<uint32_t> AlignPresence(const std::vector<double>& costs,
                                    const std::vector<bool>& has_media,
                                    uint32_t groups_per_rank, Groups* groups);

// Returns the ranks that have no media while others do, ascending; moves
// nothing.
std::vector<uint32_t> RanksWithout(const std::vector<bool>& has_media,
                                   uint32_t groups_per_rank,
                                   const Groups& groups);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PRESENCE_H_
