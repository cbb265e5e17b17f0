#ifndef BALLAST_SERVER_COMMAND_INIT_LOOK_H_
#define BALLAST_SERVER_COMMAND_INIT_LOOK_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/command/init/seen.h"

namespace ballast {

// Looks at `folder`: lists it (without hidden names, six folders deep, at most
// 200,000 entries) and reads the first samples of what may be a source. Paths
// below `config_folder` are named relative to it, all others absolute.
// `model_folder`: "" takes `folder` if a model lies there. Blocks on the disk.
// Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (not a folder; a model
// folder without config.json and preprocessor_config.json).
absl::StatusOr<Seen> LookAtFolder(const std::string& folder,
                                  const std::string& config_folder,
                                  const std::string& model_folder);

// GPUs that a process may use: of `devices` those that CUDA_VISIBLE_DEVICES
// names (null: all of them). Pure.
uint64_t VisibleGpus(uint64_t devices, const char* cuda_visible_devices);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_LOOK_H_
