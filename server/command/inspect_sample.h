#ifndef BALLAST_SERVER_COMMAND_INSPECT_SAMPLE_H_
#define BALLAST_SERVER_COMMAND_INSPECT_SAMPLE_H_

#include <functional>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/command_line.h"

namespace ballast {

// Adds `inspect sample`, which prints what a server would build for the sample
// at a position.
void AddInspectSample(CommandLine* line, Command* inspect);

// Reads one JSON object a line from `in` and writes the result of `transform`
// as one line to `out`, in order; skips empty lines. Stops at the first bad
// line. `transform` also gets the line itself. Errors name the line, counted
// from 1: INVALID_ARGUMENT (not a JSON object), transform's; UNAVAILABLE if
// `out` fails.
absl::Status TransformJsonLines(
    std::istream& in, std::ostream& out,
    const std::function<absl::StatusOr<nlohmann::ordered_json>(
        const nlohmann::json& object, const std::string& line)>& transform);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_SAMPLE_H_
