#ifndef BALLAST_SERVER_COMMAND_PLAN_H_
#define BALLAST_SERVER_COMMAND_PLAN_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/command_line.h"
#include "proto/config.pb.h"

namespace ballast {

// Adds `plan`, which prints the schedule without a server.
void AddPlan(CommandLine* line);

// The steps of train at which order or batch change, for `plan --changes`: step
// 0 and each further one with its first position, samples a step, the samples
// that a skip leaves out before it, and the weights of the sources. One JSON
// object a line, or a table. Reads no file. Errors: as PlanSteps.
absl::StatusOr<std::string> DescribeChanges(const v1::Config& config,
                                            bool json);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PLAN_H_
