#ifndef BALLAST_SERVER_SCHEDULE_STEP_PLAN_H_
#define BALLAST_SERVER_SCHEDULE_STEP_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/balance.pb.h"
#include "proto/block/block_plan.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/delivery_rule.h"
#include "server/schedule/sample_order.h"
#include "server/schedule/step_positions.h"

namespace ballast {

// The servers that read for the ranks of each module.
using ServersOfRanks = std::map<v1::Module, ServerOfRank>;

// The servers of a loaded configuration. Errors: as FindServerOfRank.
absl::StatusOr<ServersOfRanks> FindServersOfRanks(const v1::Config& config);

// The balance of a step (proto/balance.proto), columns by rank included. Pure;
// O(samples + ranks). A module that `servers` does not name has one server.
// `schedule` has passed CheckColumns.
v1::StepBalance BalanceOf(const v1::StepSchedule& schedule,
                          const ServersOfRanks& servers,
                          const BlockGeometry& geometry);

// Clears the columns by rank.
void DropRanks(v1::StepBalance* balance);

// The steps of one split by position, as order and batch change them.
struct StepPlan {
  std::vector<v1::StepRange> steps;  // not empty; see Job.step_ranges
  // The mixtures of the split's sources, in the order of SourcesOfSplit.
  std::vector<SampleOrder::Change> mixtures;
};

// The weights of train's sources, in the order of SourcesOfSplit, from a step
// on.
struct WeightsFrom {
  uint64_t step = 0;
  std::vector<double> weights;
};

// The weights of a configuration by step; the first entry is that of step 0.
std::vector<WeightsFrom> GetWeights(const v1::Config& config);

// Computes the plan of a loaded configuration. Splits other than train have no
// changes. Pure. A step depends only on changes at this step or before, and on
// changes among the steps whose data a skip before it leaves out (AltersFrom).
// Errors: as BatchSizes.
absl::StatusOr<StepPlan> PlanSteps(const v1::Config& config, v1::Split split);

// The first step that a change of mixture or size at `step` alters: `step`, or
// the step of the first skip that leaves out data from both sides of the
// change.
uint64_t AltersFrom(const v1::Order& order, uint64_t step);

// The first step of train whose data differ between two loaded configurations
// because of order.mixture_changes, order.skips, batch.changes and
// batch.rampup; nullopt if these are equal. Both configurations have valid
// batches.
std::optional<uint64_t> FirstAlteredStep(const v1::Config& a,
                                         const v1::Config& b);

// Tokens that the packs of a micro-batch hold, with packing.mode `scheduled`; 0
// with other modes.
uint64_t PackRoom(const v1::Config& config);

// packing.encoder_slack where it has an effect: with packing.mode `scheduled`,
// algorithm `refined`, an encoder, and no placement `split`, which chooses the
// encoders' owners itself. Elsewhere 0.
double EncoderSlack(const v1::Config& config);

// Samples of which a step of batch.tokens has whole multiples: those of
// packing.virtual_pipeline_group micro-batches.
uint32_t StepUnit(const v1::Config& config);

// The first step without data of a split with `order` and `steps`; 0: the data
// never end, as for any split but train. An incomplete step is not run. Errors:
// INVALID_ARGUMENT (order.epochs so small that no step has data); as
// StepPositions.
absl::StatusOr<uint64_t> EndStep(const v1::Config& config, v1::Split split,
                                 const StepPositions& steps,
                                 const SampleOrder& order);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_STEP_PLAN_H_
