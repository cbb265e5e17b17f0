#ifndef BALLAST_SERVER_SCHEDULE_PIPELINE_ORDER_H_
#define BALLAST_SERVER_SCHEDULE_PIPELINE_ORDER_H_

#include <cstdint>
#include <vector>

#include "server/schedule/pipeline_simulator.h"

namespace ballast {

// Orders a step's micro-batches so that a 1F1B pipeline whose first stage
// varies (a vision encoder before a language model) has small bubbles: entry k
// is the micro-batch that runs k-th. By the simulator never worse than the
// given order, which is kept if nothing is gained. Deterministic.
//
// Follows DistTrain (Zhang et al., 2024), section 5.3: the smallest first, to
// fill the pipeline early; the p-1 next smallest last, where nothing hides
// them; in between always the one that fits the gap best. Then pairs are
// swapped while that shortens the step. Work is bounded: gaps are fitted for up
// to 128 micro-batches (beyond, the middle is in descending order), pairs
// swapped for up to 48.
std::vector<uint32_t> PipelineOrder(
    const std::vector<StageTimes>& micro_batches);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PIPELINE_ORDER_H_
