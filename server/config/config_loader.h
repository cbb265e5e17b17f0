#ifndef BALLAST_SERVER_CONFIG_CONFIG_LOADER_H_
#define BALLAST_SERVER_CONFIG_CONFIG_LOADER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace ballast {

// A configuration with every default filled in (proto/config.proto), and the
// directory that its relative paths start from.
struct LoadedConfig {
  v1::Config config;
  std::string directory;
};

// Reads and checks the YAML file `path`. All faults are found in one pass: the
// status is INVALID_ARGUMENT with one line a fault, in order of line,
//   FILE:LINE: KEY: what was found; what was wanted
// NOT_FOUND or PERMISSION_DENIED when the file cannot be read.
absl::StatusOr<LoadedConfig> LoadConfig(const std::string& path);

// The same from text; `name` stands for the file in messages.
absl::StatusOr<LoadedConfig> ParseConfig(absl::string_view yaml,
                                         absl::string_view name,
                                         absl::string_view directory);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_CONFIG_LOADER_H_
