#ifndef BALLAST_SERVER_SETTINGS_YAML_H_
#define BALLAST_SERVER_SETTINGS_YAML_H_

#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/settings/key_report.h"

namespace ballast {

// YAML files. yaml-cpp reports by exceptions; none leaves these functions.

// ---- Numbers and words. Each returns nullopt for any other text; none accepts
// blanks.

// Digits with an optional sign.
std::optional<int64_t> ParseSigned(absl::string_view text);
// Only digits.
std::optional<uint64_t> ParseUnsigned(absl::string_view text);
// A finite decimal number: 1, -0.5, 1e-3.
std::optional<double> ParseReal(absl::string_view text);
// A number of bytes: 8GiB, 1.5MiB, 512KiB, 2GB, 1024B, 1024, 1e9. Suffixes with
// an i are powers of 1024, the others of 1000. Must be a whole number below
// 2^63.
std::optional<uint64_t> ParseByteSize(absl::string_view text);
// A number of things: 4Mi, 512Ki, 1.5Mi, 1024. Suffixes are powers of 1024.
// Must be a whole number below 2^63.
std::optional<uint64_t> ParseCount(absl::string_view text);
// A number of seconds: 30, 0.5, or with units: 500ms, 30s, 1h30m.
std::optional<double> ParseSeconds(absl::string_view text);
// A share: 0.01 or 1%.
std::optional<double> ParseShare(absl::string_view text);
// true or false.
std::optional<bool> ParseBool(absl::string_view text);

// ---- Small files that other programs wrote. Values are found by value: an
// alias costs no more than its value, since only keys that are asked
// for are followed.

// Parses one document. Errors: INVALID_ARGUMENT (not YAML, with the line).
absl::StatusOr<YAML::Node> ParseYaml(const std::string& text);

// The position at which a text has a second document, or text outside of any
// document, broken or not. Returns nullopt if there is at most one document, or
// if the first is broken, which reading it will report.
std::optional<KeyLocation> FindSecondDocument(const std::string& text);

// The value of `key` in a map; an undefined node if it is missing or `node` is
// no map.
YAML::Node FindKey(const YAML::Node& node, const std::string& key);

// The text of a scalar. Errors: INVALID_ARGUMENT "KEY: found …; wanted a text".
absl::StatusOr<std::string> GetText(const YAML::Node& node,
                                    absl::string_view key);

// The texts of a list; of a scalar, a list of one. Errors: as GetText; over
// `most` entries.
absl::StatusOr<std::vector<std::string>> GetTexts(const YAML::Node& node,
                                                  absl::string_view key,
                                                  size_t most);

// The keys of a map, in order. Errors: as GetText.
absl::StatusOr<std::vector<std::string>> GetKeys(const YAML::Node& node,
                                                 absl::string_view key,
                                                 size_t most);

}  // namespace ballast

#endif  // BALLAST_SERVER_SETTINGS_YAML_H_
