#ifndef BALLAST_SERVER_COMMAND_INIT_DECIDE_H_
#define BALLAST_SERVER_COMMAND_INIT_DECIDE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/command/init/data_tree.h"
#include "server/command/init/own_files.h"

namespace ballast {

// The store's section of `storage` as YAML, "s3: {endpoint: …}"; "" if all is
// as by default. Pure.
std::string StoreSettingsText(const SeenStore& store);

// The section `storage` that a configuration in `config_folder` has with these
// settings. Errors: INVALID_ARGUMENT (they would be refused).
absl::StatusOr<v1::Storage> StoreSettings(const SeenStore& store,
                                          const std::string& config_folder);

// A configuration for what was seen.
struct Setup {
  // The file, with a comment on each line.
  std::string yaml;
  // Files next to it that it names, such as recipes.
  std::vector<OwnFile> files;
  // Sentences for the user: the facts found, and the guesses to check.
  std::vector<std::string> found;
  std::vector<std::string> unsure;
};

// Decides on a configuration that runs as it is. Pure. Errors:
// FAILED_PRECONDITION (nothing in the folder can be a source: the message says
// what was found and why not); INVALID_ARGUMENT (the model's files are not
// JSON, or of a family that has no profile).
absl::StatusOr<Setup> DecideSetup(const Seen& seen);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_DECIDE_H_
