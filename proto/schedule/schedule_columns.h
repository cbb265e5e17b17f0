#ifndef BALLAST_PROTO_SCHEDULE_SCHEDULE_COLUMNS_H_
#define BALLAST_PROTO_SCHEDULE_SCHEDULE_COLUMNS_H_

#include "absl/status/status.h"
#include "proto/schedule.pb.h"

namespace ballast {

// Checks that a micro-batch can be read column by column: each column has one
// entry for each sample (or image, or crop), each side of a crop is 1 to 65535
// patches, no file that travels encoded is above kMostEncodedBytes, every
// reader and owner is a rank of its module, and every slot is a micro-batch of
// the step. A schedule from the wire must pass this once before anything
// indexes it. O(samples). Errors: INVALID_ARGUMENT, naming the column, the
// value found and what was wanted.
absl::Status CheckColumns(const v1::StepSchedule& schedule,
                          const v1::MicroBatchSchedule& micro_batch);

// Checks every micro-batch of the step, and that each slot contains the places
// 0, 1, 2, … once each.
absl::Status CheckColumns(const v1::StepSchedule& schedule);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_SCHEDULE_COLUMNS_H_
