#ifndef BALLAST_SERVER_CONFIG_CONFIG_LOADER_H_
#define BALLAST_SERVER_CONFIG_CONFIG_LOADER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace ballast {

// A configuration with every default filled in (proto/config.proto), and the
// directory that relative paths in its file start from. Paths in `config` are
// resolved and can be opened as they are, except sources[].path, which is a
// pattern for ExpandPath(directory, path).
struct LoadedConfig {
  v1::Config config;
  std::string directory;
  // The origin of the coefficients of balance.cost, in words
  // (ResolveModelCosts).
  std::string costs = "";
};

// Reads and checks the YAML file `path`. All faults are reported at once: the
// status is INVALID_ARGUMENT with one line for each, in order of line,
//   FILE:LINE: KEY: what was found; what was wanted
// A missing key has the line of the section that should contain it. Only
// contradictions are faults; settings that a particular program does not
// support are not. Of the files that the configuration names, only the
// config.json of a balance.cost.model or beside the tokenizer and the
// metadatasets of Energon are opened, the latter also in stores. A metadataset,
// or a blend of token files, is replaced by a source for each of its folders or
// prefixes.
//
// Also INVALID_ARGUMENT for more than 1 MiB; NOT_FOUND or PERMISSION_DENIED if
// the file cannot be read. Blocks on the disk, and on the store of a
// metadataset.
//
// If `listen` is not empty, it replaces serve.listen, which is then not
// checked; neither is `listen` (CheckListen does that).
absl::StatusOr<LoadedConfig> LoadConfig(
    const std::string& path, const std::vector<std::string>& listen = {});

// Parses the text `yaml` in the same way. Messages call the file `name`;
// relative paths start from `directory`.
absl::StatusOr<LoadedConfig> ParseConfig(
    absl::string_view yaml, absl::string_view name, absl::string_view directory,
    const std::vector<std::string>& listen = {});

// A warning that training with the loaded `config` teaches no released model
// its text: model.tokenizer is `bytes`, the default, and a source has a text.
// Empty otherwise. Pure.
std::string TrialTokenizerWarning(const v1::Config& config);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_CONFIG_LOADER_H_
