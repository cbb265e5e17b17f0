#ifndef BALLAST_SERVER_COMMAND_INIT_LOOK_H_
#define BALLAST_SERVER_COMMAND_INIT_LOOK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/command/init/seen.h"

namespace ballast {

// Where to look.
struct LookOptions {
  // A folder, or a prefix of a store: "s3://bucket/prefix".
  std::string folder;
  // Of the configuration: paths below it are named relative to it, all others
  // absolute.
  std::string config_folder = ".";
  // "" takes `folder` if a model lies there.
  std::string model_folder;
  // Settings of each kind of store, of which at most the folder's is given.
  // Paths in them are of this process.
  std::vector<SeenStore> stores = {
      {.section = "s3"}, {.section = "gcs"}, {.section = "azure"}};
};

// Looks at a folder or prefix: lists it (data_tree.h) and reads the first
// samples of what may be a source. A prefix sets up the storage of the process.
// Blocks on the disk and the store. Errors: NOT_FOUND (also a prefix without
// objects, a model folder without config.json and preprocessor_config.json);
// PERMISSION_DENIED; INVALID_ARGUMENT (not a folder or URL, settings of a store
// that are refused or given without one); as Storage::ListFolder.
absl::StatusOr<Seen> LookAtFolder(const LookOptions& options);

// GPUs that a process may use: of `devices` those that CUDA_VISIBLE_DEVICES
// names (null: all of them). Pure.
uint64_t VisibleGpus(uint64_t devices, const char* cuda_visible_devices);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_LOOK_H_
