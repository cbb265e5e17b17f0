#ifndef BALLAST_SERVER_COMMAND_INIT_LOOK_H_
#define BALLAST_SERVER_COMMAND_INIT_LOOK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/command/init/data_tree.h"

namespace ballast {

// The parts (train, val, test) of an Energon folder that have shards, each as a
// separate source at `path`, the folder as the configuration names it; `tree`
// holds the folder.
// Reads the first samples of each. Blocks on the disk. Errors: as
// OpenEnergonFolder, also if only one of the parts cannot be read, so that none
// is left out unsaid.
absl::StatusOr<std::vector<SeenFiles>> LookAtEnergon(const std::string& folder,
                                                     const std::string& path,
                                                     DataTree* tree);

// Files of one folder that differ in their numbers alone: shards of a source.
struct NameGroup {
  // Names exactly `names` among the names that were grouped, as a pattern of
  // sources[].path.
  std::string pattern;
  std::vector<std::string> names;  // sorted
};

// Groups the names of files of one folder. docs-000.tar and docs-001.tar make
// `docs-[0-9]*.tar`; a single file is its own pattern, with the characters of
// patterns escaped. In a fixed order. Pure.
std::vector<NameGroup> GroupNames(std::vector<std::string> names);

// `name` with the characters that are special in a glob escaped. Braces and
// commas have no escape: false is returned, and `name` stays.
bool EscapePattern(std::string* name);

// Where to look.
struct LookOptions {
  // A folder, or a prefix of a store: "s3://bucket/prefix".
  std::string folder;
  // Of the configuration: paths below it are named relative to it, all others
  // absolute.
  std::string config_folder = ".";
  // "" takes `folder` if it holds a model.
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
