#ifndef BALLAST_SERVER_COMMAND_REPACK_H_
#define BALLAST_SERVER_COMMAND_REPACK_H_

#include "common/command_line.h"

namespace ballast {

// Adds `repack`: writes the samples of a source as WebDataset tars.
void AddRepack(CommandLine* line);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_REPACK_H_
