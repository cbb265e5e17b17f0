#ifndef BALLAST_SERVER_SCHEDULE_PIPELINE_ORDER_H_
#define BALLAST_SERVER_SCHEDULE_PIPELINE_ORDER_H_

#include <cstdint>
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
