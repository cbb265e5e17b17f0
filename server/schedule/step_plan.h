#ifndef BALLAST_SERVER_SCHEDULE_STEP_PLAN_H_
#define BALLAST_SERVER_SCHEDULE_STEP_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "server/schedule/sample_order.h"

namespace ballast {

// The steps of one split by position, as order and batch change them.
struct StepPlan {
  std::vector<v1::StepRange> steps;  // not empty; see Job.step_ranges
  // Of the split's sources, in the order of SourcesOfSplit.
  std::vector<SampleOrder::Change> mixtures;
};

// Computes the plan of a loaded configuration. Splits other than train have no
// changes. Pure. A step depends only on what changes at its own step or
// before, and on what changes among the steps whose data a skip before it
// leaves out (AltersFrom). Errors: as BatchSizes.
absl::StatusOr<StepPlan> PlanSteps(const v1::Config& config, v1::Split split);

// The first step that a change of mixture or size at `step` alters: `step`, or
// that of the first skip that leaves out data from both sides of the change.
uint64_t AltersFrom(const v1::Order& order, uint64_t step);

// The first step of train whose data differ between two loaded configurations
// because of order.mixture_changes, order.skips, batch.changes and
// batch.rampup; nullopt if these are equal. Both configurations have valid
// batches.
std::optional<uint64_t> FirstAlteredStep(const v1::Config& a,
                                         const v1::Config& b);

// The first step without data of a split with `order`; 0: the data never end,
// as those of another split than train. An incomplete step is not run. `job`
// has its split and step_ranges. Errors: INVALID_ARGUMENT (order.epochs so
// small that no step has data).
absl::StatusOr<uint64_t> EndStep(const v1::Config& config, const v1::Job& job,
                                 const SampleOrder& order);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_STEP_PLAN_H_
