#ifndef BALLAST_SERVER_SCHEDULE_STEP_POSITIONS_H_
#define BALLAST_SERVER_SCHEDULE_STEP_POSITIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/schedule/split.h"

namespace ballast {

// The first positions of steps of sizes of their own, numbered from 0, one
// behind the other: of a plan file, or of so many tokens or packs. Thread-safe.
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

  // The steps of `job`'s ranges; from `first_step` on those of `starts`, if
  // there are any, without the data of `skips`, which are ascending and of
  // these steps.
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

 private:
  bool HasStarts(uint64_t step) const {
    return starts_ != nullptr && step >= first_step_;
  }
  // The number in `starts_` of a step.
  uint64_t NumberOf(uint64_t step) const;
  // How many of `starts_` end before `position`; nullopt if they begin after
  // it.
  absl::StatusOr<std::optional<uint64_t>> CountStarts(uint64_t position) const;

  const v1::Job job_;
  const uint64_t first_step_;
  const std::shared_ptr<const StepStarts> starts_;
  const std::vector<Skip> skips_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_STEP_POSITIONS_H_
