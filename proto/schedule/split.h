#ifndef BALLAST_PROTO_SCHEDULE_SPLIT_H_
#define BALLAST_PROTO_SCHEDULE_SPLIT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// Steps and positions of a job's split (Job.step_ranges), the same for server
// and client. Pure; O(log ranges) unless stated otherwise. A job's global_batch
// is not 0. Steps of differing sizes (StepRange.samples 0) have positions known
// only to the server (server/schedule/step_plan.h); statements about positions
// below hold for earlier steps and the first such step.

// Samples of the step. 0: its schedule has the number.
uint32_t SamplesOfStep(const v1::Job& job, uint64_t step);

// Samples of the largest step; a range of differing sizes counts as the job's
// global_batch. O(ranges).
uint32_t MostSamplesOfAStep(const v1::Job& job);

// The first of the step's positions, which are consecutive. Errors:
// OUT_OF_RANGE (they overflow uint64); UNIMPLEMENTED (a step of differing
// size).
absl::StatusOr<uint64_t> FirstPosition(const v1::Job& job, uint64_t step);

// The step that consumes the position; nullopt if order.skips leaves it out.
std::optional<uint64_t> StepOfPosition(const v1::Job& job, uint64_t position);

// Number of steps whose positions are all before `position`.
uint64_t StepsBefore(const v1::Job& job, uint64_t position);

// Positions from `first` to `end` - 1.
struct PositionRange {
  uint64_t first = 0;
  uint64_t end = 0;
};

// The positions of all steps before `step`, in ascending order. The step's
// positions fit 64 bits. O(ranges).
std::vector<PositionRange> PositionsBefore(const v1::Job& job, uint64_t step);

// Samples of all steps before `step`: Megatron's consumed_train_samples. The
// step's positions fit 64 bits. O(ranges).
uint64_t SamplesBefore(const v1::Job& job, uint64_t step);

// The name of a split in YAML, JSON and messages: "train", "valid" or "test";
// "unspecified" for any other value.
absl::string_view SplitName(v1::Split split);

// The split of that name, or nullopt.
std::optional<v1::Split> ParseSplit(absl::string_view name);

// "valid ", to begin a message about any split but train; empty for train, the
// default.
std::string SplitWord(v1::Split split);

// OK if the job has the split. Otherwise INVALID_ARGUMENT naming the key that
// gives a source its split, and the splits that the job has.
absl::Status CheckSplit(const v1::Job& job, v1::Split split);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_SPLIT_H_
