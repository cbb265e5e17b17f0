#ifndef BALLAST_SERVER_COMMAND_PLAN_H_
#define BALLAST_SERVER_COMMAND_PLAN_H_

#include "common/command_line.h"

namespace ballast {

// Adds `plan`, which prints the schedule without a server.
void AddPlan(CommandLine* line);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PLAN_H_
