#ifndef BALLAST_SERVER_CONFIG_BATCH_SIZES_H_
#define BALLAST_SERVER_CONFIG_BATCH_SIZES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"

namespace ballast {

// Consecutive steps of one size.
struct BatchSize {
  uint64_t first_step = 0;
  uint64_t samples_before = 0;  // of all steps before, as trained on
  uint32_t samples = 0;         // of each step
  bool is_change = false;       // from batch.changes
};

// The sizes of the steps of train, which batch.global, batch.rampup and
// batch.changes give, in ascending order of step; the first begins at step 0.
// Pure. Sizes by samples are those of megatron-core's
// RampupBatchsizeNumMicroBatchesCalculator and
// StepBatchsizeNumMicroBatchesCalculator, to the step. `batch` is within the
// rules of its fields. Errors: INVALID_ARGUMENT without a key, of the last
// entry of `changes` if the others are right (a point that is not after that of
// the entry before), or of `rampup` if it has no increment or too many.
absl::StatusOr<std::vector<BatchSize>> BatchSizes(const v1::Batch& batch);

// The last of `sizes` that begins at `step` or before.
const BatchSize& SizeAt(const std::vector<BatchSize>& sizes, uint64_t step);

// Samples of all steps before `step`.
uint64_t SamplesBefore(const std::vector<BatchSize>& sizes, uint64_t step);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_BATCH_SIZES_H_
