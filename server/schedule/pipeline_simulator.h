#ifndef BALLAST_SERVER_SCHEDULE_PIPELINE_SIMULATOR_H_
#define BALLAST_SERVER_SCHEDULE_PIPELINE_SIMULATOR_H_

#include <vector>

namespace ballast {

// Forward time of one micro-batch in each stage of a pipeline, in order of the
// stages, in any unit. The backward pass takes twice as long.
using StageTimes = std::vector<double>;

// Returns the time from the first forward to the last backward pass when the
// micro-batches pass through a pipeline in the given order under 1F1B: stage s
// of p runs p-1-s forward passes first, then alternates forward and backward
// passes. All entries have the same number of stages, at least one. 0 without
// micro-batches. Pure; O(stages x micro-batches).
double SimulateOneForwardOneBackward(
    const std::vector<StageTimes>& micro_batches);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PIPELINE_SIMULATOR_H_
