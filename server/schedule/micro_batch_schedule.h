#ifndef BALLAST_SERVER_SCHEDULE_MICRO_BATCH_SCHEDULE_H_
#define BALLAST_SERVER_SCHEDULE_MICRO_BATCH_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "proto/schedule.pb.h"
#include "server/schedule/ownership.h"

namespace ballast {

// Makes the message of micro-batch `number` of a step from the samples that
// `ownership` names. `samples` are consecutive whole micro-batches in order of
// position. Pure.
v1::MicroBatchSchedule MakeMicroBatch(
    const std::vector<ScheduledSample>& samples, const Ownership& ownership,
    uint32_t number, const MicroBatchShape& shape);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_MICRO_BATCH_SCHEDULE_H_
