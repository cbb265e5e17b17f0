#ifndef BALLAST_SERVER_COMMAND_INSPECT_TEXT_H_
#define BALLAST_SERVER_COMMAND_INSPECT_TEXT_H_

#include <istream>
#include <ostream>

#include "absl/status/status.h"
#include "common/command_line.h"
#include "server/text/tokenizer.h"

namespace ballast {

// Adds `inspect text`, which prints the token ids of texts.
void AddInspectText(CommandLine* line, Command* inspect);

// Runs the command on any streams. Each input line {"text": …} gives an output
// line {"ids": […]}. Errors name the line: INVALID_ARGUMENT, the tokenizer's.
absl::Status InspectText(const Tokenizer& tokenizer, std::istream& in,
                         std::ostream& out);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_TEXT_H_
