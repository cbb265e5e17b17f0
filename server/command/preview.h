#ifndef BALLAST_SERVER_COMMAND_PREVIEW_H_
#define BALLAST_SERVER_COMMAND_PREVIEW_H_

#include "common/command_line.h"

namespace ballast {

// Adds `preview`, which shows samples in a browser as the trainer will get
// them.
void AddPreview(CommandLine* line);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PREVIEW_H_
