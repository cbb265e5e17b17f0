#ifndef BALLAST_PROTO_SCHEDULE_SCHEDULE_JSON_H_
#define BALLAST_PROTO_SCHEDULE_SCHEDULE_JSON_H_

#include <string>

#include "proto/schedule.pb.h"

namespace ballast {

// Formats a step as one line of JSON without a line break, the same for equal
// schedules. `ballast-server plan --json` and `ballastctl schedule --json`
// print it.
//   {"step", "fingerprint", "micro_batches": [{"samples": [{"position",
//    "sample": "SOURCE:ORDINAL", "images", "patches", "tokens",
//    "label_tokens", "cost": {M: x}, "reader": {M: r}, "owner": {M: r}, "slot",
//    "place"}], "load": {M: {"before": [per rank], "after": [per rank]}},
//    "dummies": {"vision": [rank, …]}}], "totals": {"tokens", "tokens_squared",
//    "label_tokens", "patches", "images"}}
// `dummies` is present only if a rank must add a dummy image.
std::string ScheduleToJson(const v1::StepSchedule& schedule);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_SCHEDULE_JSON_H_
