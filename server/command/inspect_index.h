#ifndef BALLAST_SERVER_COMMAND_INSPECT_INDEX_H_
#define BALLAST_SERVER_COMMAND_INSPECT_INDEX_H_

#include "common/command_line.h"

namespace ballast {

// Adds `inspect index`, which prints what the indexes say of their images.
void AddInspectIndex(CommandLine* line, Command* inspect);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_INDEX_H_
