#ifndef BALLAST_SERVER_COMMAND_SERVE_H_
#define BALLAST_SERVER_COMMAND_SERVE_H_

#include "common/command_line.h"

namespace ballast {

// Adds `serve`, which serves a configuration until SIGTERM or SIGINT, then
// drains.
void AddServe(CommandLine* line);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_SERVE_H_
