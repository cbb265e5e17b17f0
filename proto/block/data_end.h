#ifndef BALLAST_PROTO_BLOCK_DATA_END_H_
#define BALLAST_PROTO_BLOCK_DATA_END_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace ballast {

// How many of the `steps` steps (0: no end) from step number `step` on have
// data. Returns 0, no end, only if neither `steps` nor the data end. All ranks
// of a job know where the data end, so each stops by itself before the same
// step. Errors: OUT_OF_RANGE (no step has data: DataEnd's status).
absl::StatusOr<uint64_t> StepsWithData(const v1::Job& job, uint64_t step,
                                       uint64_t steps);

// The status after the last step of a job whose data end: OUT_OF_RANGE naming
// the step.
absl::Status DataEnd(const v1::Job& job);

}  // namespace ballast

#endif  // BALLAST_PROTO_BLOCK_DATA_END_H_
