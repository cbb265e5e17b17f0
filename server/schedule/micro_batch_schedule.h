#ifndef BALLAST_SERVER_SCHEDULE_MICRO_BATCH_SCHEDULE_H_
#define BALLAST_SERVER_SCHEDULE_MICRO_BATCH_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/group_placement.h"
#include "server/schedule/sample_order.h"

namespace ballast {

// A sample of a micro-batch: which one, and how large.
struct ScheduledSample {
  SampleOrder::Sample sample;
  SampleSize size;
};

// What every micro-batch of a job has in common.
struct MicroBatchShape {
  uint32_t grid = 1;
  std::vector<ModuleRanks> modules;
  v1::Balance balance;
  uint32_t position_axes = 3;
};

// Schedules one micro-batch. Pure.
//
// Reading: the samples fall, in order of position, into `grid` equal groups;
// rank r of a module with dp d reads groups [r*grid/d, (r+1)*grid/d).
// Owning: the balancer partitions the samples into `grid` groups by joint cost,
// and rank r owns groups [r*grid/d, (r+1)*grid/d) of that partition, so that the
// modules stay paired whatever their dp sizes (spec 1.5). With delivery `off`
// the partition is the one of reading.
//
// `number` is the micro-batch's within its step. Errors: INVALID_ARGUMENT (what
// the balancer refuses).
absl::StatusOr<v1::MicroBatchSchedule> ScheduleMicroBatch(
    const std::vector<ScheduledSample>& samples, uint64_t first_position,
    uint32_t number, const MicroBatchShape& shape);

// Adds `more` to `totals`.
void AddTotals(const v1::Totals& more, v1::Totals* totals);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_MICRO_BATCH_SCHEDULE_H_
