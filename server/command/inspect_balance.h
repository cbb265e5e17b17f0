#ifndef BALLAST_SERVER_COMMAND_INSPECT_BALANCE_H_
#define BALLAST_SERVER_COMMAND_INSPECT_BALANCE_H_

#include "common/command_line.h"

namespace ballast {

// Adds `inspect balance`, which partitions costs given as JSON lines.
void AddInspectBalance(CommandLine* line, Command* inspect);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_BALANCE_H_
