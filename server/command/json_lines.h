#ifndef BALLAST_SERVER_COMMAND_JSON_LINES_H_
#define BALLAST_SERVER_COMMAND_JSON_LINES_H_

#include <functional>
#include <istream>
#include <ostream>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ballast {

// Reads one JSON object a line from `in` and writes the result of `transform`
// as one line to `out`, in order; skips empty lines. Stops at the first bad
// line. Errors name the line, counted from 1: INVALID_ARGUMENT (not a JSON
// object), transform's; UNAVAILABLE if `out` fails.
absl::Status TransformJsonLines(
    std::istream& in, std::ostream& out,
    const std::function<absl::StatusOr<nlohmann::ordered_json>(
        const nlohmann::json& object)>& transform);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_JSON_LINES_H_
