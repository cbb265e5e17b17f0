#ifndef BALLAST_SERVER_COMMAND_INSPECT_HELPERS_H_
#define BALLAST_SERVER_COMMAND_INSPECT_HELPERS_H_

#include <ostream>

#include "absl/status/status.h"
#include "common/command_line.h"

namespace ballast {

// Adds `inspect helpers` to `inspect`.
void AddInspectHelpers(CommandLine* line, Command* inspect);

// Starts each helper of a library that is not the server's own, and asks it
// once. Writes one JSON object a line: {helper, reads} or {helper, reads,
// error}; FFmpeg's also `version`. Errors: FAILED_PRECONDITION after all, with
// how many cannot run here; UNAVAILABLE at once if `out` fails.
absl::Status InspectHelpers(std::ostream& out);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_HELPERS_H_
