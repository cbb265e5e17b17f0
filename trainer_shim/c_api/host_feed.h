#ifndef BALLAST_TRAINER_SHIM_C_API_HOST_FEED_H_
#define BALLAST_TRAINER_SHIM_C_API_HOST_FEED_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer_shim/c_api/rank_feed.h"

namespace ballast {

// As InProcessGroup.
std::vector<std::unique_ptr<GroupEnd>> HostGroup(uint32_t size);

// TrainerShim. `ends` are of HostGroup, or null. Errors: as
// TrainerShim::Create.
absl::StatusOr<std::unique_ptr<RankFeed>> MakeHostFeed(
    const FeedOptions& options, GroupEnds ends);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_C_API_HOST_FEED_H_
