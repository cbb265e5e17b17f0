#ifndef BALLAST_SERVER_CONFIG_YAML_FILE_H_
#define BALLAST_SERVER_CONFIG_YAML_FILE_H_

#include <yaml-cpp/yaml.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Reads small YAML (or JSON) files that other programs wrote. yaml-cpp reports
// by exceptions; none leaves these functions. Values are found by value: an
// alias costs no more than what it stands for, since only keys that are asked
// for are followed.

// Parses one document. Errors: INVALID_ARGUMENT (not YAML, with the line).
absl::StatusOr<YAML::Node> ParseYaml(const std::string& text);

// The value of `key` in a map; an undefined node if there is none or `node` is
// no map.
YAML::Node FindKey(const YAML::Node& node, const std::string& key);

// The text of a scalar. Errors: INVALID_ARGUMENT "KEY: found …; wanted a text".
absl::StatusOr<std::string> TextOf(const YAML::Node& node,
                                   absl::string_view key);

// The texts of a list; of a scalar, a list of one. Errors: as TextOf; over
// `most` entries.
absl::StatusOr<std::vector<std::string>> TextsOf(const YAML::Node& node,
                                                 absl::string_view key,
                                                 size_t most);

// The keys of a map, in order. Errors: as TextOf.
absl::StatusOr<std::vector<std::string>> KeysOf(const YAML::Node& node,
                                                absl::string_view key,
                                                size_t most);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_YAML_FILE_H_
