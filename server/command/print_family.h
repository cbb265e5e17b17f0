#ifndef BALLAST_SERVER_COMMAND_PRINT_FAMILY_H_
#define BALLAST_SERVER_COMMAND_PRINT_FAMILY_H_

#include "common/command_line.h"

namespace ballast {

// Adds `inspect family`, which prints a released model's family as YAML.
void AddInspectFamily(CommandLine* line, Command* inspect);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PRINT_FAMILY_H_
