#ifndef BALLAST_SERVER_SCHEDULE_PIPELINE_SIMULATOR_H_
#define BALLAST_SERVER_SCHEDULE_PIPELINE_SIMULATOR_H_

#include <vector>

namespace ballast {

// How long the stages of a pipeline take for one micro-batch, in any unit. The
// backward pass takes twice the forward one.
using StageTimes = std::vector<double>;  // forward time per stage, first first

// The time from the first forward to the last backward pass when the
// micro-batches go through a pipeline in the given order under 1F1B: stage s of
// p runs p-1-s forward passes ahead, then one forward and one backward in turn.
// All entries have the same number of stages, at least one. Pure; O(stages x
// micro-batches). 0 for no micro-batches.
double SimulateOneForwardOneBackward(
    const std::vector<StageTimes>& micro_batches);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PIPELINE_SIMULATOR_H_
