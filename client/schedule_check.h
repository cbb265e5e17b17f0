#ifndef BALLAST_CLIENT_SCHEDULE_CHECK_H_
#define BALLAST_CLIENT_SCHEDULE_CHECK_H_

#include "absl/status/status.h"
#include "proto/schedule.pb.h"

namespace ballast {

// Whether a schedule that came from elsewhere is one that the rest of the code
// may index without looking: all columns of a micro-batch are equally long,
// image columns as long as the samples' images say, and every source, reader,
// owner, slot and place exists, places only once. Linear in the samples.
// Errors: INTERNAL, naming step, micro-batch, column and value.
absl::Status CheckSchedule(const v1::StepSchedule& schedule);

}  // namespace ballast

#endif  // BALLAST_CLIENT_SCHEDULE_CHECK_H_
