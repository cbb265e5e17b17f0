#ifndef BALLAST_SERVER_COMMAND_INIT_H_
#define BALLAST_SERVER_COMMAND_INIT_H_

#include "common/command_line.h"

namespace ballast {

// Adds `init`, which looks at a folder and writes a configuration for it.
void AddInit(CommandLine* line);

// Adds `inspect family`, which prints a released model's family as YAML.
void AddInspectFamily(CommandLine* line, Command* inspect);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_H_
