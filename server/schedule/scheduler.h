#ifndef BALLAST_SERVER_SCHEDULE_SCHEDULER_H_
#define BALLAST_SERVER_SCHEDULE_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "proto/order_service.pb.h"
#include "proto/schedule.pb.h"
#include "server/recipe/image_recipe.h"
#include "server/sample/source_index.h"
#include "server/schedule/ownership.h"
#include "server/schedule/plan_steps.h"

namespace ballast {

// A scheduler's inputs besides configuration and indexes.
struct SchedulerInputs {
  // The rows of order.plan, with the sources of the configuration; null: it is
  // not set.
  std::shared_ptr<const PlanRows> plan = nullptr;
  // model.recipe; null: none.
  std::shared_ptr<const ImageRecipe> recipe = nullptr;
  // With batch.tokens or batch.packs: return the starts of steps that were
  // saved under a name, or none, and save them. Null: nothing is kept.
  std::function<std::vector<uint64_t>(const std::string& name)> load_starts =
      nullptr;
  std::function<void(const std::string& name,
                     const std::vector<uint64_t>& starts)>
      save_starts = nullptr;
  // What the indexes leave out, for Job.left_out.
  std::vector<v1::LeftOut> left_out = {};
};

// Computes the schedule of any step of one split. Immutable after Create, hence
// thread-safe. Schedulers made from equal configurations and indexes return
// equal schedules on every machine.
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Creates the scheduler of train, which owns the schedulers of the other
  // splits. `config` is a loaded configuration in which model.tokenizer has
  // been replaced by the tokenizer's digest, and model.recipe by the name of
  // inputs.recipe. `indexes[i]` belongs to
  // config.sources(i), is not owned and must outlive the scheduler. Errors:
  // INVALID_ARGUMENT (an empty source; no source with `split: train`;
  // packing.mode `scheduled` with settings that rule it out; order.epochs so
  // small that the data end within the first step; a plan that the other keys
  // rule out; as BatchSizes). With batch.tokens or batch.packs reads the
  // lengths of an epoch's samples, or of order.epochs.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(
      const v1::Config& config, const std::vector<const SourceIndex*>& indexes,
      const SchedulerInputs& inputs = {});

  // Computes the schedule of `step`. Errors: OUT_OF_RANGE (the data end before
  // the step, see job().end_step(); its positions do not fit 64 bits),
  // INVALID_ARGUMENT (an image that cannot be resized, or that the recipe does
  // not plan; a sample too long for a pack), UNAVAILABLE (as
  // ModelImages::Plan), DATA_LOSS (the index is damaged at one of the step's
  // samples, or has changed since it was opened). Blocks on the disk for pages
  // of the index that have not been read before.
  virtual absl::StatusOr<v1::StepSchedule> Schedule(uint64_t step) const = 0;

  // The fingerprint of everything that the schedules of all splits depend on,
  // and of this split's data.
  virtual const v1::Fingerprint& fingerprint() const = 0;

  // The settings that clients need to lay out batches of this split.
  virtual const v1::Job& job() const = 0;

  // The job as it is at `step`; differs from job() only in a job that has been
  // changed while it ran.
  virtual const v1::Job& job_at(uint64_t /*step*/) const { return job(); }

  // The changes of the running job, in ascending order of step; none for most
  // schedulers.
  virtual std::vector<v1::Revision> revisions() const { return {}; }

  // Returns what the steps before `step` drew from each source of the split.
  // Errors: OUT_OF_RANGE (the step's positions do not fit 64 bits),
  // UNIMPLEMENTED (a scheduler without sources, in tests).
  virtual absl::StatusOr<v1::GetMixtureResponse> MixtureBefore(
      uint64_t step) const;

  // The sample at a position of the split: its source and its number there.
  // O(log changes); a plan file is read from the disk. The source is UINT32_MAX
  // if the scheduler has no sources (tests), or if the plan file lacks the row
  // or cannot be read.
  struct OrderedSample {
    uint32_t source = 0;  // in config.sources
    uint64_t ordinal = 0;
    uint64_t epoch = 0;  // completed passes through the source
  };
  virtual OrderedSample OrderedAt(uint64_t position) const;

  // The step that consumes a position of the split; nullopt if order.skips
  // leaves it out. Errors: as StepPositions::Find.
  virtual absl::StatusOr<std::optional<uint64_t>> GetStep(
      uint64_t position) const;

  // As StepStarts::FindInParts, for a server: no rank must wait while another,
  // or somebody who looks, asks for a step far away.
  virtual void FindInParts(Clock* /*clock*/) const {}

  // The job's scheduler of `split`, which lives as long as this one, the
  // scheduler of train. Errors: as CheckSplit (proto/schedule/split.h).
  absl::StatusOr<const Scheduler*> OfSplit(v1::Split split) const;

 protected:
  // The scheduler of `split`, which job().splits() lists.
  virtual const Scheduler* Find(v1::Split /*split*/) const { return this; }
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_SCHEDULER_H_
