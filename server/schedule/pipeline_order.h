#ifndef BALLAST_SERVER_SCHEDULE_PIPELINE_ORDER_H_
#define BALLAST_SERVER_SCHEDULE_PIPELINE_ORDER_H_

#include <cstdint>
#include <vector>

#include "server/schedule/pipeline_simulator.h"

namespace ballast {

// An order of a step's micro-batches in which a 1F1B pipeline whose first stage
// varies (a vision encoder before a language model) has small bubbles: entry k
// is the micro-batch that runs k-th. Never worse than the order as given, by
// the simulator; the order as given where nothing is gained. Deterministic.
//
// After DistTrain (Zhang et al., 2024) section 5.3: the smallest first, so that
// the pipeline fills soon; the p-1 next smallest last, since nothing hides them
// there; between them always the one that fits the gap best. Then any two change
// places while that shortens the step. Bounded work: fitting up to 128
// micro-batches (beyond, the middle is in descending order), swaps up to 48.
std::vector<uint32_t> PipelineOrder(
    const std::vector<StageTimes>& micro_batches);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PIPELINE_ORDER_H_
