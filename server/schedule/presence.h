#ifndef BALLAST_SERVER_SCHEDULE_PRESENCE_H_
#define BALLAST_SERVER_SCHEDULE_PRESENCE_H_

#include <cstdint>
#include <vector>

#include "server/schedule/balance.h"

namespace ballast {

// Ensures that every vision rank owns a sample with images, or that none does.
// A rank without one would not take part in the collectives inside the vision
// tower, and all others would wait for it forever.
//
// Rank r owns groups [r*groups_per_rank, (r+1)*groups_per_rank). While one rank
// has no image and another has at least two samples with images, one of these
// is swapped with a sample of the first rank: the pair that minimises the
// larger cost of the two groups (ties: lowest indexes). Group sizes do not
// change, except that a rank without samples receives the image sample and
// gives nothing. Other groups are not changed. Deterministic.
//
// Returns the ranks that still have no image, ascending: those that must add a
// dummy image because there are fewer samples with images than ranks. Empty if
// no sample has an image.
std::vector<uint32_t> AlignImages(const std::vector<double>& costs,
                                  const std::vector<bool>& has_image,
                                  uint32_t groups_per_rank, Groups* groups);

// Returns the ranks that have no image while others do, ascending; moves
// nothing.
std::vector<uint32_t> RanksWithoutImage(const std::vector<bool>& has_image,
                                        uint32_t groups_per_rank,
                                        const Groups& groups);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PRESENCE_H_
