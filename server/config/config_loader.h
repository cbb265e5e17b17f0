#ifndef BALLAST_SERVER_CONFIG_CONFIG_LOADER_H_
#define BALLAST_SERVER_CONFIG_CONFIG_LOADER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace ballast {

// A configuration with every default filled in (proto/config.proto), and the
// directory that the relative paths of its file start from. Paths in `config`
// are resolved already, so that they can be opened as they are, but for
// sources[].path: a pattern, for ExpandPath(directory, path).
struct LoadedConfig {
  v1::Config config;
  std::string directory;
};

// Reads and checks the YAML file `path`. All faults are found in one pass: the
// status is INVALID_ARGUMENT with one line a fault, in order of line,
//   FILE:LINE: KEY: what was found; what was wanted
// A missing key has the line of the section that should hold it. What one
// program does not support yet may still be configured: only contradictions
// are faults. No file that the configuration names is opened.
//
// Also INVALID_ARGUMENT for more than 1 MiB; NOT_FOUND or PERMISSION_DENIED
// when the file cannot be read. Blocks on the disk.
absl::StatusOr<LoadedConfig> LoadConfig(const std::string& path);

// The same from text; `name` stands for the file in messages, and relative
// paths start from `directory`.
absl::StatusOr<LoadedConfig> ParseConfig(absl::string_view yaml,
                                         absl::string_view name,
                                         absl::string_view directory);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_CONFIG_LOADER_H_
