#ifndef BALLAST_SERVER_SCHEDULE_VISION_RELIEF_H_
#define BALLAST_SERVER_SCHEDULE_VISION_RELIEF_H_

#include <cstdint>
#include <vector>

#include "server/schedule/balance.h"
#include "server/schedule/vision_placement.h"

namespace ballast {

// Takes the load above `limit` off every rank, as far as the search finds
// moves, beginning with every sample at its home. Of PlaceVision, which says
// more. Returns the samples of each rank. Pure.
Groups RelieveRanks(const std::vector<VisionSample>& samples,
                    const VisionRanks& ranks, int64_t limit);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_VISION_RELIEF_H_
