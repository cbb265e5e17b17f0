#ifndef BALLAST_SERVER_COMMAND_INIT_ENERGON_PARTS_H_
#define BALLAST_SERVER_COMMAND_INIT_ENERGON_PARTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/command/init/data_tree.h"
#include "server/command/init/seen.h"

namespace ballast {

// The parts (train, val, test) of an Energon folder that have shards, each as a
// source of its own at `path`, the folder as the configuration shall name it;
// `tree` holds the folder.
// Reads the first samples of each. Blocks on the disk. Errors: as
// OpenEnergonFolder, also if only one of the parts cannot be read, so that none
// is left out unsaid.
absl::StatusOr<std::vector<SeenFiles>> LookAtEnergon(const std::string& folder,
                                                     const std::string& path,
                                                     DataTree* tree);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_ENERGON_PARTS_H_
