#ifndef BALLAST_PROTO_SCHEDULE_SCHEDULE_TABLE_H_
#define BALLAST_PROTO_SCHEDULE_SCHEDULE_TABLE_H_

#include <string>

#include "proto/schedule.pb.h"

namespace ballast {

// Formats a step for people: one line for each micro-batch and module with the
// load of its ranks before and after balancing (smallest, largest, largest over
// mean) and the number of samples that change their rank; then the step's
// totals. `ballast-server plan` and `ballastctl schedule` print it without
// --json.
std::string ScheduleToTable(const v1::StepSchedule& schedule);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_SCHEDULE_TABLE_H_
