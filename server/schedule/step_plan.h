#ifndef BALLAST_SERVER_SCHEDULE_STEP_PLAN_H_
#define BALLAST_SERVER_SCHEDULE_STEP_PLAN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "proto/balance.pb.h"
#include "proto/block/block_plan.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "server/schedule/sample_order.h"

namespace ballast {

// The sources, sizes and seed of one split of a configuration. Pure.

// The splits that have sources, in the order of their numbers.
std::vector<v1::Split> GetSplits(const v1::Config& config);

// The numbers of the split's sources in config.sources, ascending.
std::vector<uint32_t> SourcesOfSplit(const v1::Config& config, v1::Split split);

// The split's own sizes of steps (batch.valid, batch.test); null if it uses
// train's. Belongs to `batch`.
const v1::Batch::Sizes* OwnSizes(const v1::Batch& batch, v1::Split split);

// `config` with the split's sizes of steps in batch.global and batch.micro.
v1::Config ConfigOfSplit(v1::Config config, v1::Split split);

// The seed of the split's order, from order.seed. Train uses order.seed itself,
// so that a job's order does not change when it gets another split. Valid and
// test use hashes, which differ from each other for every seed, and from the
// hashes of every other seed.
uint64_t SeedOfSplit(uint64_t seed, v1::Split split);

// The first positions of steps with separate sizes, numbered from 0, in order:
// of a plan file, or of so many tokens or packs. Thread-safe.
class StepStarts {
 public:
  virtual ~StepStarts() = default;

  // The first position of step `n`, which is the end of step n - 1. May have to
  // find the steps before it first. Errors: OUT_OF_RANGE (there are fewer);
  // other errors of reading the samples.
  virtual absl::StatusOr<uint64_t> Start(uint64_t n) const = 0;

  // How many steps end at or before `position`, which is at least Start(0).
  // Errors: as Start, but for OUT_OF_RANGE.
  virtual absl::StatusOr<uint64_t> CountEnded(uint64_t position) const = 0;

  // From now on no call finds starts for long: one that would ends with
  // UNAVAILABLE after a part of them, and the next call goes on there. `clock`
  // is not owned.
  virtual void FindInParts(Clock* /*clock*/) const {}
};

// Steps and positions of a split, whether its job lists them
// (Job.step_ranges) or they have starts. Immutable; thread-safe. O(log steps)
// once the starts have been found.
class StepPositions {
 public:
  // Data of steps that are left out, as order.skips.
  struct Skip {
    uint64_t step = 0;
    uint64_t steps = 0;
  };

  // The steps of `job`'s ranges; from `first_step` on the ones of `starts`, if
  // any, without the data of `skips`, which are ascending and of these steps.
  explicit StepPositions(v1::Job job, uint64_t first_step = 0,
                         std::shared_ptr<const StepStarts> starts = nullptr,
                         std::vector<Skip> skips = {})
      : job_(std::move(job)),
        first_step_(first_step),
        starts_(std::move(starts)),
        skips_(std::move(skips)) {}

  // The first position of a step. Errors: OUT_OF_RANGE (no such step, or its
  // positions do not fit 64 bits); as StepStarts.
  absl::StatusOr<uint64_t> First(uint64_t step) const;
  // The positions of a step. Errors: likewise.
  absl::StatusOr<PositionRange> Of(uint64_t step) const;
  // The step that consumes the position; nullopt if order.skips leaves it out.
  // Errors: as StepStarts.
  absl::StatusOr<std::optional<uint64_t>> Find(uint64_t position) const;
  // Number of steps whose positions are all before `position`. Errors: as
  // StepStarts.
  absl::StatusOr<uint64_t> CountEnded(uint64_t position) const;
  // The positions of all steps before `step`, ascending. Errors: as First.
  absl::StatusOr<std::vector<PositionRange>> Before(uint64_t step) const;
  // As StepStarts::FindInParts.
  void FindInParts(Clock* clock) const {
    if (starts_ != nullptr) starts_->FindInParts(clock);
  }

 private:
  bool HasStarts(uint64_t step) const {
    return starts_ != nullptr && step >= first_step_;
  }
  // The number in `starts_` of a step.
  uint64_t GetNumber(uint64_t step) const;
  // How many of `starts_` end before `position`; nullopt if they begin after
  // it.
  absl::StatusOr<std::optional<uint64_t>> CountStarts(uint64_t position) const;

  const v1::Job job_;
  const uint64_t first_step_;
  const std::shared_ptr<const StepStarts> starts_;
  const std::vector<Skip> skips_;
};

// The servers that read for the ranks of each module.
using ServersOfRanks = std::map<v1::Module, ServerOfRank>;

// The servers of a loaded configuration. Errors: as FindServerOfRank.
absl::StatusOr<ServersOfRanks> FindServersOfRanks(const v1::Config& config);

// The balance of a step (proto/balance.proto), columns by rank included. Pure;
// O(samples + ranks). A module that `servers` does not name has one server.
// `schedule` has passed CheckColumns.
v1::StepBalance GetBalance(const v1::StepSchedule& schedule,
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

// The weights of a configuration by step; the first entry is for step 0.
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

// A step of batch.tokens has a multiple of this many samples, which are
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
