#ifndef BALLAST_SERVER_CONFIG_YAML_SCALAR_H_
#define BALLAST_SERVER_CONFIG_YAML_SCALAR_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace ballast {

// Parsers of numbers as written in a configuration. Each returns nullopt for
// any other text; none accepts blanks.

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
// true or false.
std::optional<bool> ParseBool(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_YAML_SCALAR_H_
