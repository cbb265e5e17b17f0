#ifndef BALLAST_SERVER_SCHEDULE_PRESENCE_H_
#define BALLAST_SERVER_SCHEDULE_PRESENCE_H_

#include <cstdint>
#include <vector>

#include "server/schedule/balance.h"

namespace ballast {

// Sees to it that every vision rank owns a sample with images or none does: a
// rank without one would be missing from the collectives inside the vision
// tower, and all others would wait for it for ever.
//
// Rank r owns groups [r*groups_per_rank, (r+1)*groups_per_rank). While a rank
// has no image and another has two samples with images, one of these changes
// places with a sample of the first, the pair for which the larger of the two
// groups' costs ends least (ties: lowest indexes); group sizes stay as they are,
// but a rank that owns nothing is given the image sample alone. Other groups are
// not touched. Deterministic.
//
// Returns the ranks that are still without, ascending: those that must add a
// dummy image, because there are fewer samples with images than ranks. Empty
// where no sample has an image.
std::vector<uint32_t> AlignImages(const std::vector<double>& costs,
                                  const std::vector<bool>& has_image,
                                  uint32_t groups_per_rank, Groups* groups);

// Only names the ranks that are without an image while others have one.
std::vector<uint32_t> RanksWithoutImage(const std::vector<bool>& has_image,
                                        uint32_t groups_per_rank,
                                        const Groups& groups);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PRESENCE_H_
