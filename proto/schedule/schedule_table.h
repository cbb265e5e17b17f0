#ifndef BALLAST_PROTO_SCHEDULE_SCHEDULE_TABLE_H_
#define BALLAST_PROTO_SCHEDULE_SCHEDULE_TABLE_H_

#include <string>

#include "proto/schedule.pb.h"

namespace ballast {

// A step for people: a line a micro-batch and module with the load of its ranks
// before and after balancing (smallest, largest, largest over mean), how many
// samples change their rank, and the step's totals. What `ballast-server plan`
// and `ballastctl schedule` print without --json.
std::string ScheduleToTable(const v1::StepSchedule& schedule);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_SCHEDULE_TABLE_H_
