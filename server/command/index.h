#ifndef BALLAST_SERVER_COMMAND_INDEX_H_
#define BALLAST_SERVER_COMMAND_INDEX_H_

#include "common/command_line.h"

namespace ballast {

// Adds `index`, which builds or refreshes the index of every source.
void AddIndex(CommandLine* line);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INDEX_H_
