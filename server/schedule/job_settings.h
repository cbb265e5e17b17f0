#ifndef BALLAST_SERVER_SCHEDULE_JOB_SETTINGS_H_
#define BALLAST_SERVER_SCHEDULE_JOB_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/schedule/micro_batch_schedule.h"
#include "server/schedule/ownership.h"

namespace ballast {

// What a configuration says of the job that it describes. Pure functions.

// The shape of micro-batches, without costs, which may differ by step. Errors:
// as FindServerOfRank.
absl::StatusOr<MicroBatchShape> MakeShape(const v1::Config& config);

// What a client is told of the job, but for its split, its steps' sizes and
// ends, and what is left out.
v1::Job MakeJob(const v1::Config& config,
                const std::vector<ModuleRanks>& modules);

// Sets the sizes of the job's steps, unless each has the configured one.
void SetRanges(const std::vector<v1::StepRange>& steps, v1::Job* job);

// Sets the job's global_batch to `samples`, rounded up to whole micro-batches.
void SetLargest(uint64_t samples, v1::Job* job);

// The limits of packs; nullopt unless packing.mode is `scheduled`. `job` has
// its step sizes. Errors: INVALID_ARGUMENT (balance.delivery `off`; no language
// in topology.modules; a step whose samples do not fill the packs of all
// ranks).
absl::StatusOr<std::optional<PackShape>> MakePackShape(const v1::Config& config,
                                                       const v1::Job& job);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_JOB_SETTINGS_H_
