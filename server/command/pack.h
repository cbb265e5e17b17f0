#ifndef BALLAST_SERVER_COMMAND_PACK_H_
#define BALLAST_SERVER_COMMAND_PACK_H_

#include "common/command_line.h"

namespace ballast {

// Adds `pack`, which packs samples offline into a plan file.
void AddPack(CommandLine* line);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PACK_H_
