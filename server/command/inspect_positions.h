#ifndef BALLAST_SERVER_COMMAND_INSPECT_POSITIONS_H_
#define BALLAST_SERVER_COMMAND_INSPECT_POSITIONS_H_

#include <istream>
#include <ostream>

#include "absl/status/status.h"
#include "common/command_line.h"
#include "proto/config.pb.h"

namespace ballast {

// Adds `inspect positions`, which prints the position ids of token ids.
void AddInspectPositions(CommandLine* line, Command* inspect);

// Runs the command on any streams. Each input line {"input_ids": […],
// "image_grid_thw": [[t,h,w], …]} gives an output line {"position_ids": [[…],
// …]} with one list for each axis of `model`. Errors name the line:
// INVALID_ARGUMENT.
absl::Status InspectPositions(const v1::Model& model, std::istream& in,
                              std::ostream& out);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_POSITIONS_H_
