#ifndef BALLAST_SERVER_COMMAND_FETCH_H_
#define BALLAST_SERVER_COMMAND_FETCH_H_

#include "common/command_line.h"

namespace ballast {

// Adds the command `fetch`, which fills the cache of a node before training.
void AddFetch(CommandLine* line);

// Adds `preview`, which shows samples in a browser as the trainer will get
// them.
void AddPreview(CommandLine* line);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_FETCH_H_
