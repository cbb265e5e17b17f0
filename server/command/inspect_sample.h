#ifndef BALLAST_SERVER_COMMAND_INSPECT_SAMPLE_H_
#define BALLAST_SERVER_COMMAND_INSPECT_SAMPLE_H_

#include "common/command_line.h"

namespace ballast {

// Adds `inspect sample`, which prints what a server would build for the sample
// at a position.
void AddInspectSample(CommandLine* line, Command* inspect);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_SAMPLE_H_
