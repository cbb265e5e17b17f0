#ifndef BALLAST_SERVER_COMMAND_INSPECT_PLACEMENT_H_
#define BALLAST_SERVER_COMMAND_INSPECT_PLACEMENT_H_

#include "common/command_line.h"

namespace ballast {

// Adds `inspect placement`: compares objectives and placements by the times
// that the costs predict.
void AddInspectPlacement(CommandLine* line, Command* inspect);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_PLACEMENT_H_
