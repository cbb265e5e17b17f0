#ifndef BALLAST_PROTO_SCHEDULE_SCHEDULE_COLUMNS_H_
#define BALLAST_PROTO_SCHEDULE_SCHEDULE_COLUMNS_H_

#include "absl/status/status.h"
#include "proto/schedule.pb.h"

namespace ballast {

// Checks that a micro-batch can be read column by column: each column has one
// entry a sample (or an image), every image has a size of 1 to 65535 patches a
// side, every reader and owner is a rank of its module, and every slot is a
// micro-batch of the step. A schedule that came over the wire is checked once
// with this before anything indexes it. O(samples). Errors: INVALID_ARGUMENT
// naming the column, what it holds and what was wanted.
absl::Status CheckColumns(const v1::StepSchedule& schedule,
                          const v1::MicroBatchSchedule& micro_batch);

// The same for every micro-batch of the step, and that the places of each slot
// are 0, 1, 2, …, each once.
absl::Status CheckColumns(const v1::StepSchedule& schedule);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_SCHEDULE_COLUMNS_H_
