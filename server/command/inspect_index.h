#ifndef BALLAST_SERVER_COMMAND_INSPECT_INDEX_H_
#define BALLAST_SERVER_COMMAND_INSPECT_INDEX_H_

#include <cstdint>
#include <ostream>

#include "absl/status/status.h"
#include "common/command_line.h"
#include "server/corpus/mock/mock_source.h"

namespace ballast {

// Adds `inspect index`, which prints what the indexes say of their images.
void AddInspectIndex(CommandLine* line, Command* inspect);

// Adds `inspect balance`, which partitions costs given as JSON lines.
void AddInspectBalance(CommandLine* line, Command* inspect);

// Adds `inspect placement`: compares objectives and placements by the times
// that the costs predict.
void AddInspectPlacement(CommandLine* line, Command* inspect);

// Writes the first `count` lengths of a mock source as one JSON array and a
// line break. Errors: INVALID_ARGUMENT names the option at fault; UNAVAILABLE
// if `out` fails.
absl::Status InspectLengths(const LognormalLengths& lengths, uint64_t count,
                            std::ostream& out);

// Adds `inspect lengths`, which prints the lengths of a mock source.
void AddInspectLengths(CommandLine* line, Command* inspect);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_INDEX_H_
